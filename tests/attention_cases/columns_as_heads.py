# good: a head takes every third feature, and the features go back where they came from
# build: StridedHeads(d_in, d_out, num_heads, context_length, dropout)
# qkvo: rows(m.query, torch.arange(d_out).view(head_dim, num_heads).T.flatten()), rows(m.key, torch.arange(d_out).view(head_dim, num_heads).T.flatten()), rows(m.value, torch.arange(d_out).view(head_dim, num_heads).T.flatten()), columns(m.proj, torch.arange(d_out).view(head_dim, num_heads).T.flatten())
import torch
from torch import nn


class StridedHeads(nn.Module):
    def __init__(self, d_in, d_out, num_heads, block_size, dropout=0.0):
        super().__init__()
        assert d_out % num_heads == 0
        self.num_heads = num_heads
        self.query = nn.Linear(d_in, d_out)
        self.key = nn.Linear(d_in, d_out)
        self.value = nn.Linear(d_in, d_out)
        self.proj = nn.Linear(d_out, d_out)
        self.drop = nn.Dropout(dropout)
        self.register_buffer("keep", torch.ones(block_size, block_size).tril() == 1)

    def forward(self, x):
        t = x.size(1)
        q, k, v = (
            layer(x).unflatten(-1, (-1, self.num_heads)).permute(0, 3, 1, 2)
            for layer in (self.query, self.key, self.value)
        )
        score = (q / k.size(-1) ** 0.5) @ k.transpose(-1, -2)
        score = score.masked_fill(~self.keep[:t, :t], float("-inf"))
        weight = self.drop(score.softmax(-1))
        out = (weight @ v).permute(0, 2, 3, 1)
        return self.proj(out.flatten(2))
