# good: the fused call with a float mask and an explicit scale, mask made at each forward
# build: FloatMasked(n_embed=d_out, n_heads=num_heads, p_drop=dropout)
# qkvo: m.fc_q, m.fc_k, m.fc_v, m.fc_out
import math

import torch
import torch.nn.functional as F
from torch import nn


def future_is_hidden(length, like):
    mask = torch.zeros(length, length, dtype=like.dtype, device=like.device)
    above = torch.ones_like(mask, dtype=torch.bool).triu(diagonal=1)
    return mask.masked_fill(above, -math.inf)


class FloatMasked(nn.Module):
    def __init__(self, n_embed, n_heads, p_drop=0.0):
        super().__init__()
        if n_embed % n_heads:
            raise ValueError("n_embed must be divisible by n_heads")
        self.n_heads = n_heads
        self.p_drop = p_drop
        self.fc_q, self.fc_k, self.fc_v = (nn.Linear(n_embed, n_embed) for _ in range(3))
        self.fc_out = nn.Linear(n_embed, n_embed)

    def split(self, x):
        batch, length, width = x.shape
        return x.view(batch, length, self.n_heads, width // self.n_heads).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.split(self.fc_q(x)), self.split(self.fc_k(x)), self.split(self.fc_v(x))
        mask = future_is_hidden(x.shape[1], q)
        p = self.p_drop if self.training else 0
        scale = 1 / math.sqrt(q.shape[-1])
        y = F.scaled_dot_product_attention(q, k, v, mask, p, scale=scale)
        return self.fc_out(y.transpose(1, 2).reshape(x.shape))
