# good: one head of keys and values, all heads of queries folded into the tokens
# build: Shared(d_out, num_heads)
# qkvo: cut(m.wqkv, 0, 24, 6, 6), cut(m.wqkv, 1, 24, 6, 6), cut(m.wqkv, 2, 24, 6, 6), m.out
# sizes: num_heads=4, head_dim=6
import torch
import torch.nn.functional as F
from torch import nn


class Shared(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        assert d_model % n_heads == 0
        self.n_heads, self.hd = n_heads, d_model // n_heads
        self.wqkv = nn.Linear(d_model, d_model + 2 * self.hd)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = self.wqkv(x).split([d, self.hd, self.hd], dim=2)
        q = q.reshape(b, s * self.n_heads, self.hd)
        scores = torch.bmm(q, k.transpose(1, 2)) / self.hd**0.5
        scores = scores.view(b, s, self.n_heads, s)
        hidden = torch.ones(s, s, dtype=torch.bool, device=x.device).triu(1)
        scores = scores.masked_fill(hidden[None, :, None, :], float("-inf"))
        weights = scores.softmax(-1).view(b, s * self.n_heads, s)
        return self.out(torch.bmm(weights, v).view(b, s, d))
