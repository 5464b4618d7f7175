# good: one head of keys and values for all heads of queries, einsum with spaces
# build: MultiQuery(d_out, num_heads, head_dim)
# qkvo: m.to_q, part(m.to_kv, 0, 2), part(m.to_kv, 1, 2), m.to_out
# sees: all
# skip: divisible
import torch
from torch import einsum, nn


class MultiQuery(nn.Module):
    def __init__(self, dim, heads, dim_head):
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(dim, heads * dim_head, bias=False)
        self.to_kv = nn.Linear(dim, 2 * dim_head, bias=False)
        self.to_out = nn.Linear(heads * dim_head, dim, bias=False)

    def forward(self, x):
        q, k, v = (self.to_q(x), *self.to_kv(x).chunk(2, dim=-1))
        q = q.unflatten(-1, (self.heads, -1)).transpose(1, 2) * k.shape[-1] ** -0.5
        share = einsum("b h i d, b j d -> b h i j", q, k).softmax(dim=-1)
        out = einsum("b h i j, b j d -> b h i d", share, v)
        return self.to_out(out.transpose(1, 2).flatten(2))
