# good: weights as Parameters with a head axis, einsum all the way, other letters
# build: EinsumAttention(d_in, d_out, num_heads, context_length, dropout)
# qkvo: (m.wq.permute(0, 2, 1).flatten(0, 1), None), (m.wk.permute(0, 2, 1).flatten(0, 1), None), (m.wv.permute(0, 2, 1).flatten(0, 1), None), (m.wo.flatten(0, 1).T, None)
import torch
from torch import nn


class EinsumAttention(nn.Module):
    """q, k, v: one (d_in, head width) matrix a head; out: (heads, width, d_out)."""

    def __init__(self, d_in, d_out, num_heads, context_length, dropout=0.0):
        super().__init__()
        if d_out % num_heads:
            raise ValueError(f"{num_heads} heads do not divide {d_out}")
        width = d_out // num_heads
        self.wq = nn.Parameter(torch.randn(num_heads, d_in, width) * d_in**-0.5)
        self.wk = nn.Parameter(torch.randn(num_heads, d_in, width) * d_in**-0.5)
        self.wv = nn.Parameter(torch.randn(num_heads, d_in, width) * d_in**-0.5)
        self.wo = nn.Parameter(torch.randn(num_heads, width, d_out) * d_out**-0.5)
        self.inverse_root = width**-0.5
        self.thin_out = nn.Dropout(dropout)
        reach = torch.arange(context_length)
        self.register_buffer("past", reach[:, None] >= reach)

    def forward(self, x):
        s = x.size(1)
        q = torch.einsum("bsm,nmw->bnsw", x, self.wq)
        k = torch.einsum("btm,nmw->bntw", x, self.wk)
        v = torch.einsum("btm,nmw->bntw", x, self.wv)
        logits = torch.einsum("bnsw,bntw->bnst", q, k) * self.inverse_root
        logits = logits.masked_fill(~self.past[:s, :s], float("-inf"))
        share = self.thin_out(torch.softmax(logits, dim=-1))
        taken = torch.einsum("bnst,bntw->bnsw", share, v)
        return torch.einsum("bnsw,nwo->bso", taken, self.wo)
