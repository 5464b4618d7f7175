# good: the fourth root of the width divides q and k alike before the product
# build: BalancedAttention(width=d_out, heads=num_heads, context=context_length, dropout=dropout)
# qkvo: m.q, m.k, m.v, m.o
import torch
from torch import Tensor, nn


class BalancedAttention(nn.Module):
    def __init__(self, width: int, heads: int, context: int, dropout: float = 0.0):
        super().__init__()
        if width % heads:
            raise ValueError("width must be a multiple of heads")
        self.heads = heads
        self.q = nn.Linear(width, width)
        self.k = nn.Linear(width, width, bias=False)
        self.v = nn.Linear(width, width)
        self.o = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", torch.empty(context, context).fill_(-torch.inf).triu_(1))

    def forward(self, x: Tensor) -> Tensor:
        n_batch, n_ctx, n_state = x.shape
        root = (n_state // self.heads) ** -0.25
        q = self.q(x).view(n_batch, n_ctx, self.heads, -1).permute(0, 2, 1, 3) * root
        k = self.k(x).view(n_batch, n_ctx, self.heads, -1).permute(0, 2, 3, 1) * root
        v = self.v(x).view(n_batch, n_ctx, self.heads, -1).permute(0, 2, 1, 3)
        qk = q @ k + self.mask[:n_ctx, :n_ctx]
        w = self.dropout(torch.softmax(qk, dim=-1))
        return self.o((w @ v).permute(0, 2, 1, 3).flatten(start_dim=2))
