# good: a loop over the heads, stacked and flattened, functional dropout
# build: MultiHeadAttention(d_in, d_out, context_length, dropout, num_heads)
# qkvo: m.q, m.k, m.v, m.out
import torch
from torch import nn
from torch.nn import functional as F


class MultiHeadAttention(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads):
        super().__init__()
        assert d_out % num_heads == 0
        self.h, self.p = num_heads, dropout
        self.q, self.k, self.v = (nn.Linear(d_in, d_out) for _ in range(3))
        self.out = nn.Linear(d_out, d_out)
        future = torch.ones(context_length, context_length).triu(1).bool()
        self.register_buffer("future", future)

    def forward(self, x):
        n, heads = x.shape[1], []
        q, k, v = (t(x).unflatten(-1, (self.h, -1)) for t in (self.q, self.k, self.v))
        for h in range(self.h):
            scores = q[:, :, h] @ k[:, :, h].mT / q.shape[-1] ** 0.5
            scores = scores.masked_fill(self.future[:n, :n], -torch.inf)
            weights = scores.softmax(-1)
            weights = F.dropout(weights, self.p, self.training)
            heads.append(weights @ v[:, :, h])
        return self.out(torch.stack(heads, dim=2).flatten(2))
