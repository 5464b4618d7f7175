# good: to_q and to_kv, einsum, inner width of heads times dim_head, the mask made by arange
# build: Attention(dim=d_in, heads=num_heads, dim_head=head_dim, dropout=dropout)
# qkvo: m.to_q, part(m.to_kv, 0, 2), part(m.to_kv, 1, 2), (m.to_out.weight, None)
import torch
from torch import einsum, nn


class Attention(nn.Module):
    def __init__(self, dim, heads=8, dim_head=64, dropout=0.0):
        super().__init__()
        inner = dim_head * heads
        self.heads = heads
        self.scale = dim_head**-0.5
        self.to_q = nn.Linear(dim, inner, bias=False)
        self.to_kv = nn.Linear(dim, inner * 2, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.to_out = nn.Linear(inner, dim, bias=False)

    def forward(self, x):
        b, n, h = *x.shape[:2], self.heads
        q = self.to_q(x)
        k, v = self.to_kv(x).chunk(2, dim=-1)
        q, k, v = (t.reshape(b, n, h, -1).permute(0, 2, 1, 3) for t in (q, k, v))
        sim = einsum("b h i d, b h j d -> b h i j", q, k) * self.scale
        i = torch.arange(n, device=x.device)
        sim = sim.masked_fill(i[:, None] < i[None, :], -torch.finfo(sim.dtype).max)
        attn = self.dropout(sim.softmax(dim=-1))
        out = einsum("b h i j, b h j d -> b h i d", attn, v)
        out = out.permute(0, 2, 1, 3).reshape(b, n, -1)
        return self.to_out(out)
