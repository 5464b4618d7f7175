# good: single heads that read a width fixed in the file
# build: MultiHead(num_heads, head_dim, context_length)
# qkvo: cat([h.query for h in m.heads]), cat([h.key for h in m.heads]), cat([h.value for h in m.heads]), m.proj
import torch
from torch import nn

WIDTH = 12


class Head(nn.Module):
    def __init__(self, size, longest):
        super().__init__()
        self.key = nn.Linear(WIDTH, size, bias=False)
        self.query = nn.Linear(WIDTH, size, bias=False)
        self.value = nn.Linear(WIDTH, size, bias=False)
        self.register_buffer("tril", torch.ones(longest, longest).tril())

    def forward(self, x):
        T = x.shape[1]
        wei = self.query(x) @ self.key(x).mT * self.key.out_features**-0.5
        wei = wei.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
        return wei.softmax(-1) @ self.value(x)


class MultiHead(nn.Module):
    def __init__(self, num_heads, head_size, block_size):
        super().__init__()
        self.heads = nn.ModuleList([Head(head_size, block_size) for _ in range(num_heads)])
        self.proj = nn.Linear(num_heads * head_size, WIDTH)

    def forward(self, x):
        return self.proj(torch.cat([head(x) for head in self.heads], dim=-1))
