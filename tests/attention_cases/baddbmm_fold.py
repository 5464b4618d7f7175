# good: heads folded into the batch, baddbmm adds a float mask and scales in one call
# build: FoldedAttention(embed_dim=d_out, num_heads=num_heads, max_len=context_length, dropout=dropout, bias=bias)
# qkvo: m.q_proj, m.k_proj, m.v_proj, m.out_proj
import torch
import torch.nn.functional as F
from torch import nn


class FoldedAttention(nn.Module):
    def __init__(self, embed_dim, num_heads, max_len, dropout=0.0, bias=True):
        super().__init__()
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise ValueError("embed_dim must be divisible by num_heads")
        self.scaling = self.head_dim**-0.5
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.k_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.v_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=True)
        self.dropout = dropout
        blocked = torch.full((max_len, max_len), float("-inf")).triu(1)
        self.register_buffer("blocked", blocked)

    def _shape(self, tensor, bsz):
        tensor = tensor.view(bsz, -1, self.num_heads, self.head_dim)
        return tensor.transpose(1, 2).reshape(bsz * self.num_heads, -1, self.head_dim)

    def forward(self, hidden):
        bsz, tgt_len, _ = hidden.size()
        query = self._shape(self.q_proj(hidden), bsz)
        key = self._shape(self.k_proj(hidden), bsz)
        value = self._shape(self.v_proj(hidden), bsz)
        scores = torch.baddbmm(
            self.blocked[:tgt_len, :tgt_len], query, key.mT, alpha=self.scaling
        )
        probs = F.softmax(scores, dim=-1)
        probs = F.dropout(probs, p=self.dropout, training=self.training)
        mixed = torch.bmm(probs, value)
        mixed = mixed.view(bsz, self.num_heads, tgt_len, self.head_dim)
        mixed = mixed.transpose(1, 2)
        mixed = mixed.reshape(bsz, tgt_len, self.embed_dim)
        return self.out_proj(mixed)
