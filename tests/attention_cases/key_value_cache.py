# good: an optional cache of keys and values, returned beside the output
# build: CachedAttention(dim=d_out, n_heads=num_heads, max_seq_len=context_length, dropout=dropout)
# cached: m(x, past)
# qkvo: m.wq, m.wk, m.wv, m.wo
from typing import Optional, Tuple

import torch
import torch.nn.functional as F
from torch import nn


class CachedAttention(nn.Module):
    def __init__(self, dim: int, n_heads: int, max_seq_len: int, dropout: float = 0.0):
        super().__init__()
        assert dim % n_heads == 0
        self.n_heads = n_heads
        self.head_dim = dim // n_heads
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wk = nn.Linear(dim, dim, bias=False)
        self.wv = nn.Linear(dim, dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)
        self.dropout = dropout
        mask = torch.full((1, 1, max_seq_len, max_seq_len), float("-inf"))
        self.register_buffer("mask", torch.triu(mask, diagonal=1), persistent=False)

    def forward(self, x, cache: Optional[Tuple[torch.Tensor, torch.Tensor]] = None):
        bsz, seqlen, _ = x.shape
        xq = self.wq(x).view(bsz, seqlen, self.n_heads, self.head_dim)
        xk = self.wk(x).view(bsz, seqlen, self.n_heads, self.head_dim)
        xv = self.wv(x).view(bsz, seqlen, self.n_heads, self.head_dim)
        start = 0
        if cache is not None:
            start = cache[0].shape[1]
            xk = torch.cat([cache[0], xk], dim=1)
            xv = torch.cat([cache[1], xv], dim=1)
        end = start + seqlen
        xq, keys, values = xq.transpose(1, 2), xk.transpose(1, 2), xv.transpose(1, 2)
        scores = torch.matmul(xq, keys.transpose(2, 3)) / self.head_dim**0.5
        scores = scores + self.mask[:, :, start:end, :end]
        scores = F.softmax(scores, dim=-1)
        scores = F.dropout(scores, p=self.dropout, training=self.training)
        output = torch.matmul(scores, values)
        output = output.transpose(1, 2).contiguous().view(bsz, seqlen, -1)
        return self.wo(output), (xk, xv)
