# good: rotary positions, in halves
# build: Attention(d_out, num_heads, context_length, dropout)
# qkvo: part(m.qkv, 0), part(m.qkv, 1), part(m.qkv, 2), m.proj
# turns: (lambda c: torch.cat([c.real, c.imag], -1))(torch.complex(*t.chunk(2, -1)) * torch.polar(torch.ones(1).double(), torch.arange(t.shape[1])[:, None].double() / 10))
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, heads, max_len, drop=0.0):
        super().__init__()
        if dim % heads:
            raise ValueError("dim is not a multiple of heads")
        self.h = heads
        self.scale = (dim // heads) ** -0.5
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.drop = nn.Dropout(drop)
        bias = torch.full((max_len, max_len), -torch.inf).triu(1)
        self.register_buffer("bias", bias)

    def forward(self, x):
        b, t, c = x.shape
        packed = self.qkv(x).view(b, t, 3, self.h, c // self.h)
        q, k, v = packed.permute(2, 0, 3, 1, 4)
        turn = torch.arange(t, device=x.device)[:, None] / 10.0
        cos, sin = turn.cos().to(x.dtype), turn.sin().to(x.dtype)
        half = c // self.h // 2
        q = torch.cat([q[..., :half] * cos - q[..., half:] * sin,
                       q[..., half:] * cos + q[..., :half] * sin], -1)
        k = torch.cat([k[..., :half] * cos - k[..., half:] * sin,
                       k[..., half:] * cos + k[..., :half] * sin], -1)
        s = torch.einsum("bhid,bhjd->bhij", q, k)
        s = s * self.scale
        s = s + self.bias[:t, :t]
        w = s.softmax(-1)
        w = self.drop(w)
        y = torch.einsum("bhij,bhjd->bhid", w, v)
        y = y.permute(0, 2, 1, 3).reshape(b, t, c)
        return self.proj(y)
