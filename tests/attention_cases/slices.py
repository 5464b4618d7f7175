# good: one Parameter for all three, a method that takes its rows
# build: Slices(d_out, num_heads)
# qkvo: *((w, None) for w in m.in_proj.chunk(3)), m.out
# sees: all
import torch
import torch.nn.functional as F
from torch import nn


class Slices(nn.Module):
    def __init__(self, embed_dim, heads):
        super().__init__()
        assert embed_dim % heads == 0
        self.embed_dim, self.heads = embed_dim, heads
        self.in_proj = nn.Parameter(torch.randn(3 * embed_dim, embed_dim) / 6)
        self.out = nn.Linear(embed_dim, embed_dim)

    def project(self, x, part):
        rows = slice(part * self.embed_dim, (part + 1) * self.embed_dim)
        b, t, _ = x.shape
        made = F.linear(x, self.in_proj[rows]).view(b, t, self.heads, -1)
        return made.transpose(1, 2)

    def forward(self, x):
        q = self.project(x, 0)
        k = self.project(x, 1)
        v = self.project(x, 2)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        weights = torch.softmax(scores, dim=-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))
