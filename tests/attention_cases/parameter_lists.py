# good: ParameterLists of one matrix a head, x @ W, heads stacked in front and moved back
# build: PerHead(d_in, d_out, context_length, dropout, num_heads)
# qkvo: cat([(w.T, None) for w in m.Wq]), cat([(w.T, None) for w in m.Wk]), cat([(w.T, None) for w in m.Wv]), (m.Wo.T, None)
import math

import torch
from torch import nn


class PerHead(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads):
        super().__init__()
        if d_out % num_heads != 0:
            raise ValueError("d_out must be divisible by num_heads")
        width = d_out // num_heads

        def matrices():
            return nn.ParameterList(
                [nn.Parameter(torch.randn(d_in, width) / math.sqrt(d_in)) for _ in range(num_heads)]
            )

        self.Wq, self.Wk, self.Wv = matrices(), matrices(), matrices()
        self.Wo = nn.Parameter(torch.randn(d_out, d_out) / math.sqrt(d_out))
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("tril", torch.ones(context_length, context_length).tril())

    def forward(self, x):
        q = torch.stack([x @ w for w in self.Wq])
        k = torch.stack([x @ w for w in self.Wk])
        v = torch.stack([x @ w for w in self.Wv])
        t = x.size(1)
        scores = q @ k.transpose(-2, -1)
        scores = scores / math.sqrt(k.size(-1))
        scores = scores.masked_fill(self.tril[:t, :t] == 0, -math.inf)
        weights = self.dropout(scores.softmax(-1))
        heads = weights @ v
        joined = heads.permute(1, 2, 0, 3).flatten(2)
        return joined @ self.Wo
