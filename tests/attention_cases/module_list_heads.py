# good: a wrapper of single causal heads in a ModuleList, joined and projected
# build: MultiHead(d_in, d_out, context_length, dropout, num_heads, qkv_bias=bias)
# qkvo: cat([h.q for h in m.heads]), cat([h.k for h in m.heads]), cat([h.v for h in m.heads]), m.mix
import torch
from torch import nn


class OneHead(nn.Module):
    def __init__(self, d_in, width, context_length, dropout, bias):
        super().__init__()
        self.q = nn.Linear(d_in, width, bias=bias)
        self.k = nn.Linear(d_in, width, bias=bias)
        self.v = nn.Linear(d_in, width, bias=bias)
        self.drop = nn.Dropout(dropout)
        later = torch.triu(torch.ones(context_length, context_length), 1) > 0
        self.register_buffer("later", later, persistent=False)

    def forward(self, x):
        t = x.shape[1]
        scores = self.q(x) @ self.k(x).transpose(1, 2)
        scores = scores / self.k.out_features**0.5
        scores = scores.masked_fill(self.later[:t, :t], float("-inf"))
        return self.drop(scores.softmax(-1)) @ self.v(x)


class MultiHead(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        width, rest = divmod(d_out, num_heads)
        if rest:
            raise ValueError("heads do not fit into d_out")
        self.heads = nn.ModuleList(
            OneHead(d_in, width, context_length, dropout, qkv_bias)
            for _ in range(num_heads)
        )
        self.mix = nn.Linear(d_out, d_out)

    def forward(self, x):
        return self.mix(torch.cat([head(x) for head in self.heads], dim=-1))
