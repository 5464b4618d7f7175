# good: forward(q, k, v, attn_mask), True where attention is blocked
# build: MaskedByCaller(embed_dim=d_out, heads=num_heads, dropout=dropout)
# call: m(x, x, x, torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1))
# qkvo: m.fc_query, m.fc_key, m.fc_value, m.fc_concat
import torch
import torch.nn as nn


class MaskedByCaller(nn.Module):
    """attn_mask: (T, T), True where a query must not look."""

    def __init__(self, embed_dim, heads, dropout=0.0):
        super().__init__()
        if embed_dim % heads:
            raise ValueError("embed_dim must be a multiple of heads")
        self.heads, self.head_width = heads, embed_dim // heads
        self.fc_query = nn.Linear(embed_dim, embed_dim)
        self.fc_key = nn.Linear(embed_dim, embed_dim)
        self.fc_value = nn.Linear(embed_dim, embed_dim)
        self.fc_concat = nn.Linear(embed_dim, embed_dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, query, key, value, attn_mask):
        n, length, width = query.shape
        query = self.fc_query(query).reshape(n, length, self.heads, self.head_width)
        key = self.fc_key(key).reshape(n, length, self.heads, self.head_width)
        value = self.fc_value(value).reshape(n, length, self.heads, self.head_width)
        energy = torch.einsum("nqhd,nkhd->nhqk", [query, key])
        energy = energy / self.head_width**0.5
        energy = energy.masked_fill(attn_mask, float("-inf"))
        attention = self.dropout(torch.softmax(energy, dim=3))
        out = torch.einsum("nhql,nlhd->nqhd", [attention, value])
        return self.fc_concat(out.reshape(n, length, width))
