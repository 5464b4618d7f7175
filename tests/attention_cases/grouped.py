# good: fewer heads of keys and values, repeated by a helper, the fused call
# build: Grouped(d_out, num_heads, 2)
# qkvo: m.wq, m.wk, m.wv, m.wo
# sizes: num_heads=4, head_dim=6
import torch
import torch.nn.functional as F
from torch import nn


def repeat_kv(x, times):
    return x.repeat_interleave(times, dim=1)

class Grouped(nn.Module):
    def __init__(self, dim, n_heads, n_kv_heads):
        super().__init__()
        assert dim % n_heads == 0
        self.n_heads, self.n_kv_heads, self.hd = n_heads, n_kv_heads, dim // n_heads
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wk = nn.Linear(dim, n_kv_heads * self.hd, bias=False)
        self.wv = nn.Linear(dim, n_kv_heads * self.hd, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        q = self.wq(x).view(b, t, self.n_heads, self.hd).transpose(1, 2)
        k = self.wk(x).view(b, t, self.n_kv_heads, self.hd).transpose(1, 2)
        v = self.wv(x).view(b, t, self.n_kv_heads, self.hd).transpose(1, 2)
        times = self.n_heads // self.n_kv_heads
        k, v = repeat_kv(k, times), repeat_kv(v, times)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(out.transpose(1, 2).reshape(b, t, -1))
