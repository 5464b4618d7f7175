# good: scores with the heads on the last axis, a softmax over the third
# build: HeadsLast(d_in, d_out, context_length, dropout, num_heads)
# qkvo: m.q, m.k, m.v, m.o
import torch
from torch import nn


class HeadsLast(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads):
        super().__init__()
        assert d_out % num_heads == 0
        self.num_heads = num_heads
        self.q = nn.Linear(d_in, d_out, bias=False)
        self.k = nn.Linear(d_in, d_out, bias=False)
        self.v = nn.Linear(d_in, d_out, bias=False)
        self.o = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        future = torch.ones(context_length, context_length).triu(1).bool()
        self.register_buffer("future", future)

    def forward(self, x):
        b, t, _ = x.shape
        q = self.q(x).view(b, t, self.num_heads, -1)
        k = self.k(x).view(b, t, self.num_heads, -1)
        v = self.v(x).view(b, t, self.num_heads, -1)
        scores = torch.einsum("bqhd,bkhd->bqkh", q, k) / q.shape[-1] ** 0.5
        scores = scores.masked_fill(self.future[:t, :t, None], -torch.inf)
        weights = scores.softmax(dim=2)
        weights = self.dropout(weights)
        contexts = torch.einsum("bqkh,bkhd->bqhd", weights, v)
        return self.o(contexts.flatten(2))
