# good: free functions for split, scores, causal softmax and merge; the module only holds layers
# build: FunctionalStyle(n_embd=d_out, n_head=num_heads, dropout=dropout, bias=bias)
# qkvo: m.c_query, m.c_key, m.c_value, m.c_proj
import math

import torch
from torch import nn


def to_heads(x, n_head):
    """(B, T, n_head * d) -> (n_head, B, T, d)"""
    return torch.stack(x.chunk(n_head, dim=-1))


def from_heads(x):
    """(n_head, B, T, d) -> (B, T, n_head * d)"""
    return torch.cat(x.unbind(0), dim=-1)


def scores(q, k):
    return q.matmul(k.transpose(-1, -2)).mul(1 / math.sqrt(q.shape[-1]))


def causal_softmax(s):
    n = s.shape[-1]
    keep = torch.ones(n, n, dtype=torch.bool, device=s.device).tril()
    s = torch.where(keep, s, float("-inf"))
    return torch.softmax(s, dim=-1)


class FunctionalStyle(nn.Module):
    def __init__(self, n_embd, n_head, dropout=0.0, bias=True):
        super().__init__()
        if n_embd % n_head:
            raise ValueError(f"n_embd={n_embd} cannot be shared by {n_head} heads")
        self.n_head = n_head
        self.c_query = nn.Linear(n_embd, n_embd, bias=bias)
        self.c_key = nn.Linear(n_embd, n_embd, bias=bias)
        self.c_value = nn.Linear(n_embd, n_embd, bias=bias)
        self.c_proj = nn.Linear(n_embd, n_embd, bias=bias)
        self.attn_dropout = nn.Dropout(dropout)

    def forward(self, x):
        q = to_heads(self.c_query(x), self.n_head)
        k = to_heads(self.c_key(x), self.n_head)
        v = to_heads(self.c_value(x), self.n_head)
        w = self.attn_dropout(causal_softmax(scores(q, k)))
        return self.c_proj(from_heads(w.matmul(v)))
