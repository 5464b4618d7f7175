# good: one head written for matrices, torch.vmap over batch and heads
# build: Vmapped(d_in, d_out, num_heads)
# qkvo: m.q, m.k, m.v, m.o
import torch
from torch import nn


def one_head(q, k, v):
    """(T, d) each -> (T, d)"""
    t, d = q.shape
    scores = q @ k.T / d**0.5
    future = torch.ones(t, t, dtype=torch.bool, device=q.device).triu(1)
    scores = torch.where(future, float("-inf"), scores)
    return torch.softmax(scores, dim=1) @ v


class Vmapped(nn.Module):
    def __init__(self, d_in, d_out, num_heads):
        super().__init__()
        if d_out % num_heads:
            raise ValueError("d_out must be divisible by num_heads")
        self.num_heads = num_heads
        self.q = nn.Linear(d_in, d_out)
        self.k = nn.Linear(d_in, d_out)
        self.v = nn.Linear(d_in, d_out)
        self.o = nn.Linear(d_out, d_out)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (f(x).view(b, t, self.num_heads, -1) for f in (self.q, self.k, self.v))
        every_head = torch.vmap(one_head, in_dims=1, out_dims=1)
        context = torch.vmap(every_head)(q, k, v)
        return self.o(context.flatten(2))
