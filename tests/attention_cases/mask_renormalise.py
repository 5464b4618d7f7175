# good: softmax over everything, zero the future, divide by what is left
# build: LongWay(d_in, d_out, context_length, dropout, num_heads, qkv_bias=bias)
# qkvo: m.to_queries, m.to_keys, m.to_values, m.unify
# risk: weights = torch.softmax(scores
# risk: weights = weights / weights.sum(
# skip: large
import torch
from torch import nn


class LongWay(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        self.num_heads, left_over = num_heads, d_out % num_heads
        if left_over:
            raise ValueError(f"{left_over} features are left over")
        self.to_queries = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.to_keys = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.to_values = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.unify = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        simple = torch.tril(torch.ones(context_length, context_length))
        self.register_buffer("mask_simple", simple)

    def heads(self, t):
        return t.reshape(*t.shape[:2], self.num_heads, -1).movedim(2, 1)

    def forward(self, x):
        tokens = x.shape[1]
        queries = self.heads(self.to_queries(x))
        keys = self.heads(self.to_keys(x))
        values = self.heads(self.to_values(x))
        scores = torch.einsum("zhqc,zhkc->zhqk", queries, keys)
        weights = torch.softmax(scores / keys.size(-1) ** 0.5, dim=-1)
        weights = weights * self.mask_simple[:tokens, :tokens]
        weights = weights / weights.sum(dim=-1, keepdim=True)
        weights = self.dropout(weights)
        context = torch.einsum("zhqk,zhkc->zhqc", weights, values)
        return self.unify(context.movedim(1, 2).flatten(-2))
