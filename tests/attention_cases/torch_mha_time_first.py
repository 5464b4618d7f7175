# good: nn.MultiheadAttention with tokens first, transposed on both sides, a float mask, weights returned
# build: TimeFirst(d_out, num_heads, dropout)
# qkvo: part((m.inner.in_proj_weight, m.inner.in_proj_bias), 0), part((m.inner.in_proj_weight, m.inner.in_proj_bias), 1), part((m.inner.in_proj_weight, m.inner.in_proj_bias), 2), m.inner.out_proj
import torch
import torch.nn as nn


class TimeFirst(nn.Module):
    def __init__(self, d_model, nhead, dropout=0.1):
        super().__init__()
        self.inner = nn.MultiheadAttention(d_model, nhead, dropout)

    def forward(self, src):
        src = src.transpose(0, 1)
        length = src.size(0)
        mask = nn.Transformer.generate_square_subsequent_mask(
            length, device=src.device, dtype=src.dtype
        )
        out, weights = self.inner(src, src, src, attn_mask=mask)
        return out.transpose(0, 1), weights
