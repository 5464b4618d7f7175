# good: packed rows with q, k and v of each feature side by side, unbind on the last axis
# build: Interleaved(d_in, d_out, context_length, dropout, num_heads, qkv_bias=bias)
# qkvo: rows(m.in_proj, packed_rows("hd3", num_heads, head_dim, 0)), rows(m.in_proj, packed_rows("hd3", num_heads, head_dim, 1)), rows(m.in_proj, packed_rows("hd3", num_heads, head_dim, 2)), m.out_proj
import torch
import torch.nn as nn


class Interleaved(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        assert d_out % num_heads == 0, "num_heads must divide d_out"
        self.num_heads = num_heads
        self.in_proj = nn.Linear(d_in, d_out * 3, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out)
        self.attn_dropout = nn.Dropout(dropout)
        self.context_length = context_length

    def forward(self, x):
        b, n, _ = x.shape
        if n > self.context_length:
            raise ValueError(f"{n} tokens, but context_length is {self.context_length}")
        q, k, v = self.in_proj(x).view(b, n, self.num_heads, -1, 3).unbind(-1)
        scores = torch.einsum("bqhc,bkhc->bhqk", q, k) / q.shape[-1] ** 0.5
        step = torch.arange(n, device=x.device)
        scores = scores.masked_fill(step > step[:, None], -torch.inf)
        attn = self.attn_dropout(scores.softmax(-1))
        out = torch.einsum("bhqk,bkhc->bqhc", attn, v)
        return self.out_proj(out.flatten(2))
