# good: nn.MultiheadAttention inside, batch_first, a boolean mask that is True where attention is blocked
# build: CausalMHA(embed_dim=d_out, num_heads=num_heads, max_len=context_length, dropout=dropout, bias=bias)
# qkvo: part((m.attn.in_proj_weight, m.attn.in_proj_bias), 0), part((m.attn.in_proj_weight, m.attn.in_proj_bias), 1), part((m.attn.in_proj_weight, m.attn.in_proj_bias), 2), m.attn.out_proj
import torch
from torch import nn


class CausalMHA(nn.Module):
    def __init__(self, embed_dim, num_heads, max_len, dropout=0.0, bias=True):
        super().__init__()
        self.attn = nn.MultiheadAttention(
            embed_dim, num_heads, dropout=dropout, bias=bias, batch_first=True
        )
        blocked = torch.triu(torch.ones(max_len, max_len, dtype=torch.bool), diagonal=1)
        self.register_buffer("blocked", blocked)

    def forward(self, x):
        T = x.size(1)
        out, _ = self.attn(x, x, x, attn_mask=self.blocked[:T, :T], need_weights=False)
        return out
