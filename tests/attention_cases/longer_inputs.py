# good: a guard on the length, the mask put into a part of the scores
# build: LongInputs(d_in, d_out, context_length, dropout, num_heads)
# qkvo: m.q, m.k, m.v, m.o
import torch
from torch import nn


class LongInputs(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads):
        super().__init__()
        if d_out % num_heads:
            raise ValueError("d_out must be divisible by num_heads")
        self.context_length = context_length
        self.num_heads = num_heads
        self.q = nn.Linear(d_in, d_out)
        self.k = nn.Linear(d_in, d_out)
        self.v = nn.Linear(d_in, d_out)
        self.o = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("hide", torch.ones(context_length, context_length).triu(1).bool())

    def forward(self, x):
        b, t, _ = x.shape
        assert t <= self.context_length, "too many tokens"
        q = self.q(x).view(b, t, self.num_heads, -1).transpose(1, 2)
        k = self.k(x).view(b, t, self.num_heads, -1).transpose(1, 2)
        v = self.v(x).view(b, t, self.num_heads, -1).transpose(1, 2)
        scores = q @ k.mT / q.size(-1) ** 0.5
        n = min(t, self.context_length)
        scores[..., :n, :n] = scores[..., :n, :n].masked_fill(self.hide[:n, :n], -torch.inf)
        weights = self.dropout(scores.softmax(-1))
        return self.o((weights @ v).transpose(1, 2).reshape(b, t, -1))
