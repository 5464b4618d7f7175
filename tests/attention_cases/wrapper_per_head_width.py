# good: the chapter's wrapper: d_out is the width of one head, no output projection
# build: MultiHeadAttentionWrapper(d_in, head_dim, context_length, dropout, num_heads, qkv_bias=bias)
# qkvo: cat([h.W_query for h in m.heads]), cat([h.W_key for h in m.heads]), cat([h.W_value for h in m.heads]), None
import torch
import torch.nn as nn


class CausalAttention(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, qkv_bias=False):
        super().__init__()
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer(
            "mask", torch.triu(torch.ones(context_length, context_length), diagonal=1)
        )

    def forward(self, x):
        batch, tokens, _ = x.shape
        keys = self.W_key(x)
        queries = self.W_query(x)
        values = self.W_value(x)
        scores = torch.bmm(queries, keys.transpose(1, 2))
        hidden = self.mask[:tokens, :tokens] == 1
        scores = scores.masked_fill(hidden, -torch.inf)
        weights = self.dropout((scores / keys.shape[-1] ** 0.5).softmax(dim=2))
        return torch.bmm(weights, values)


class MultiHeadAttentionWrapper(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        made = [
            CausalAttention(d_in, d_out, context_length, dropout, qkv_bias)
            for _ in range(num_heads)
        ]
        self.heads = nn.ModuleList(made)

    def forward(self, x):
        return torch.cat([head(x) for head in self.heads], dim=2)
