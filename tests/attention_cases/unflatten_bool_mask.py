# good: unflatten and flatten, the fused call with a boolean mask, True where attention is allowed
# build: BoolMasked(dim=d_out, num_heads=num_heads, seq_len=context_length, drop=dropout, bias=bias)
# qkvo: m.wq, m.wk, m.wv, m.wo
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention as attend


class BoolMasked(nn.Module):
    def __init__(self, dim, num_heads, seq_len, drop=0.0, bias=False):
        super().__init__()
        assert not dim % num_heads, (dim, num_heads)
        self.num_heads = num_heads
        self.wq = nn.Linear(dim, dim, bias)
        self.wk = nn.Linear(dim, dim, bias)
        self.wv = nn.Linear(dim, dim, bias)
        self.wo = nn.Linear(dim, dim, False)
        self.drop = drop
        ok = torch.ones(seq_len, seq_len, dtype=torch.bool).tril()
        self.register_buffer("ok", ok)

    def forward(self, x):
        length = x.size(1)
        q = self.wq(x).unflatten(2, (self.num_heads, -1)).swapaxes(1, 2)
        k = self.wk(x).unflatten(2, (self.num_heads, -1)).swapaxes(1, 2)
        v = self.wv(x).unflatten(2, (self.num_heads, -1)).swapaxes(1, 2)
        rate = self.drop if self.training else 0.0
        y = attend(q, k, v, attn_mask=self.ok[:length, :length], dropout_p=rate)
        return self.wo(y.swapaxes(1, 2).flatten(2))
