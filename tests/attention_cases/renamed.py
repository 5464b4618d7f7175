# good: names of GPT code, the packed layer read by index
# build: Renamed(d_out, num_heads, context_length, dropout)
# qkvo: part(m.qkv, 0), part(m.qkv, 1), part(m.qkv, 2), m.out
import torch
from torch import nn


class Renamed(nn.Module):
    def __init__(self, n_embd, n_head, block_size, dropout):
        super().__init__()
        assert n_embd % n_head == 0
        self.n_head = n_head
        self.qkv = nn.Linear(n_embd, 3 * n_embd)
        self.out = nn.Linear(n_embd, n_embd)
        self.drop = nn.Dropout(dropout)
        self.register_buffer("past", torch.ones(block_size, block_size).tril())

    def forward(self, x):
        B, T, C = x.shape
        packed = self.qkv(x).view(B, T, 3, self.n_head, -1).permute(2, 0, 3, 1, 4)
        q, k, v = packed[0], packed[1], packed[2]
        att = (q @ k.transpose(-2, -1)) / k.size(-1) ** 0.5
        att = att.masked_fill(self.past[:T, :T] == 0, float("-inf"))
        att = self.drop(att.softmax(dim=-1))
        y = (att @ v).transpose(1, 2).reshape(B, T, C)
        return self.out(y)
