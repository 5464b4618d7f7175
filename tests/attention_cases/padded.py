# good: an optional mask of padding, one number a token
# build: Padded(d_out, num_heads)
# padded: m(x, seen)
# qkvo: m.query, m.key, m.value, m.out
# sees: all
import torch
import torch.nn.functional as F
from torch import nn


class Padded(nn.Module):
    def __init__(self, hidden_size, num_heads):
        super().__init__()
        assert hidden_size % num_heads == 0
        self.num_heads = num_heads
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size)
        self.out = nn.Linear(hidden_size, hidden_size)

    def split(self, x):
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def forward(self, x, attention_mask=None):
        q = self.split(self.query(x))
        k = self.split(self.key(x))
        v = self.split(self.value(x))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if attention_mask is not None:
            seen = attention_mask[:, None, None, :].bool()
            scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
        weights = torch.softmax(scores, dim=-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))
