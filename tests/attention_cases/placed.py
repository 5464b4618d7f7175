# good: learnt positions added to the input inside
# build: Placed(d_out, num_heads, context_length)
# qkvo: part(m.qkv, 0), part(m.qkv, 1), part(m.qkv, 2), m.out
# reads: x + m.pos[: x.shape[1]]
# also_learns: pos
# sees: all
import torch
import torch.nn.functional as F
from torch import nn


class Placed(nn.Module):
    def __init__(self, num_features, num_heads, max_seq):
        super().__init__()
        assert num_features % num_heads == 0
        self.num_heads = num_heads
        self.pos = nn.Parameter(torch.randn(max_seq, num_features))
        self.qkv = nn.Linear(num_features, 3 * num_features)
        self.out = nn.Linear(num_features, num_features)

    def forward(self, x):
        x = x + self.pos[: x.shape[1]]
        parts = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for t in parts)
        weights = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))
