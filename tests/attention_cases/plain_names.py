# good: the chapter's names, softmax as a method, a helper that splits
# build: Plain(d_in, d_out, context_length, dropout, num_heads, qkv_bias=bias)
# qkvo: m.W_query, m.W_key, m.W_value, m.W_out
import torch
from torch import nn


class Plain(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        if d_out % num_heads:
            raise ValueError("num_heads must divide d_out")
        self.num_heads = num_heads
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_out = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("later", torch.ones(context_length, context_length).triu(1).bool())

    def split(self, rows):
        return rows.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def forward(self, x):
        tokens = x.shape[1]
        queries, keys = self.split(self.W_query(x)), self.split(self.W_key(x))
        values = self.split(self.W_value(x))
        scores = queries @ keys.mT / keys.shape[-1] ** 0.5
        scores = scores.masked_fill(self.later[:tokens, :tokens], -torch.inf)
        weights = self.dropout(scores.softmax(dim=-1))
        joined = (weights @ values).transpose(1, 2).flatten(2)
        return self.W_out(joined)
