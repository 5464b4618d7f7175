# good: packed layer split in three, scores times 1/sqrt, a lower-triangle buffer with two leading axes
# build: CausalSelfAttention(n_embd=d_out, n_head=num_heads, block_size=context_length, attn_pdrop=dropout, resid_pdrop=dropout)
# qkvo: part(m.to_qkv, 0), part(m.to_qkv, 1), part(m.to_qkv, 2), m.to_out
# also_drops: resid_drop
import math

import torch
import torch.nn as nn


class CausalSelfAttention(nn.Module):
    def __init__(self, n_embd, n_head, block_size, attn_pdrop=0.1, resid_pdrop=0.1):
        super().__init__()
        if n_embd % n_head:
            raise ValueError(f"n_embd {n_embd} is not a multiple of n_head {n_head}")
        self.to_qkv = nn.Linear(n_embd, 3 * n_embd)
        self.to_out = nn.Linear(n_embd, n_embd)
        self.attn_drop = nn.Dropout(attn_pdrop)
        self.resid_drop = nn.Dropout(resid_pdrop)
        allowed = torch.ones(block_size, block_size).tril()
        self.register_buffer("allowed", allowed[None, None])
        self.n_head, self.n_embd = n_head, n_embd

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.to_qkv(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.allowed[:, :, :T, :T] == 0, -math.inf)
        att = torch.softmax(att, dim=-1)
        att = self.attn_drop(att)
        y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.resid_drop(self.to_out(y))
