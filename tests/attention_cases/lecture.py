# good: one head in a method, cut out of the width by a slice
# build: Lecture(d_in, d_out, context_length, dropout, num_heads)
# qkvo: m.W_query, m.W_key, m.W_value, m.out_proj
import torch
import torch.nn.functional as F
from torch import nn


def causal_mask(size):
    ones = torch.ones(size, size)
    return torch.triu(ones, diagonal=1).bool()

class Lecture(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads):
        super().__init__()
        assert d_out % num_heads == 0
        self.num_heads, self.hd = num_heads, d_out // num_heads
        self.W_query = nn.Linear(d_in, d_out)
        self.W_key = nn.Linear(d_in, d_out)
        self.W_value = nn.Linear(d_in, d_out)
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", causal_mask(context_length))

    def one_head(self, q, k, v):
        n = q.shape[1]
        scores = q @ k.mT / self.hd**0.5
        scores = scores.masked_fill(self.mask[:n, :n], -torch.inf)
        weights = torch.softmax(scores, dim=-1)
        weights = self.dropout(weights)
        return weights @ v

    def forward(self, x):
        q, k, v = self.W_query(x), self.W_key(x), self.W_value(x)
        contexts = []
        for h in range(self.num_heads):
            part = slice(h * self.hd, (h + 1) * self.hd)
            contexts.append(self.one_head(q[..., part], k[..., part], v[..., part]))
        joined = torch.cat(contexts, dim=-1)
        return self.out_proj(joined)
