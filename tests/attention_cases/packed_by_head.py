# good: one packed layer whose rows are grouped by head: q, k, v of head 0, then of head 1
# build: NeoXAttention(hidden_size=d_out, num_attention_heads=num_heads, max_positions=context_length, attention_dropout=dropout)
# qkvo: rows(m.query_key_value, packed_rows("h3d", num_heads, head_dim, 0)), rows(m.query_key_value, packed_rows("h3d", num_heads, head_dim, 1)), rows(m.query_key_value, packed_rows("h3d", num_heads, head_dim, 2)), m.dense
import torch
from torch import nn


class NeoXAttention(nn.Module):
    def __init__(self, hidden_size, num_attention_heads, max_positions, attention_dropout=0.0):
        super().__init__()
        if hidden_size % num_attention_heads:
            raise ValueError("hidden_size must be divisible by num_attention_heads")
        self.num_heads = num_attention_heads
        self.head_size = hidden_size // num_attention_heads
        self.norm_factor = self.head_size**-0.5
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size)
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.attention_dropout = nn.Dropout(attention_dropout)
        ones = torch.ones((max_positions, max_positions), dtype=torch.bool)
        self.register_buffer("causal", torch.tril(ones)[None, None], persistent=False)

    def forward(self, hidden):
        batch, length, _ = hidden.shape
        packed = self.query_key_value(hidden)
        packed = packed.view(batch, length, self.num_heads, 3 * self.head_size)
        query = packed[..., : self.head_size].permute(0, 2, 1, 3)
        key = packed[..., self.head_size : 2 * self.head_size].permute(0, 2, 1, 3)
        value = packed[..., 2 * self.head_size :].permute(0, 2, 1, 3)
        scores = torch.matmul(query, key.transpose(-1, -2)) * self.norm_factor
        lowest = torch.finfo(scores.dtype).min
        scores = scores.masked_fill(~self.causal[..., :length, :length], lowest)
        attention = self.attention_dropout(scores.softmax(dim=-1))
        context = torch.matmul(attention, value)
        context = context.permute(0, 2, 1, 3).contiguous()
        return self.dense(context.view(batch, length, -1)), attention
