# good: the article's class, a statement for each stage
# build: MultiHeadAttention(d_in, d_out, context_length, dropout, num_heads, qkv_bias=bias)
# qkvo: m.W_query, m.W_key, m.W_value, m.out_proj
import torch
import torch.nn as nn


class MultiHeadAttention(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        assert d_out % num_heads == 0, "d_out must be divisible by num_heads"
        self.d_out, self.num_heads = d_out, num_heads
        self.head_dim = d_out // num_heads
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        mask = torch.triu(torch.ones(context_length, context_length), diagonal=1)
        self.register_buffer("mask", mask.bool())

    def forward(self, x):
        b, n, _ = x.shape
        queries = self.W_query(x).view(b, n, self.num_heads, self.head_dim)
        keys = self.W_key(x).view(b, n, self.num_heads, self.head_dim)
        values = self.W_value(x).view(b, n, self.num_heads, self.head_dim)
        queries, keys = queries.transpose(1, 2), keys.transpose(1, 2)
        values = values.transpose(1, 2)
        scores = queries @ keys.transpose(2, 3)
        scores = scores / self.head_dim**0.5
        scores = scores.masked_fill(self.mask[:n, :n], -torch.inf)
        weights = torch.softmax(scores, dim=-1)
        weights = self.dropout(weights)
        contexts = weights @ values
        joined = contexts.transpose(1, 2).contiguous().view(b, n, self.d_out)
        return self.out_proj(joined)
