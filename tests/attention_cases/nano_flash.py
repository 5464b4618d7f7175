# good: one packed layer, split, fused causal attention, residual dropout, a config object
# build: CausalSelfAttention(GPTConfig(block_size=context_length, n_head=num_heads, n_embd=d_out, dropout=dropout, bias=bias))
# qkvo: part(m.c_attn, 0), part(m.c_attn, 1), part(m.c_attn, 2), m.c_proj
# also_drops: resid_dropout
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F


@dataclass
class GPTConfig:
    block_size: int = 32
    n_head: int = 4
    n_embd: int = 48
    dropout: float = 0.0
    bias: bool = True


class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        assert config.n_embd % config.n_head == 0
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.resid_dropout = nn.Dropout(config.dropout)
        self.n_head = config.n_head
        self.n_embd = config.n_embd
        self.p = config.dropout

    def forward(self, x):
        batch, steps, width = x.size()
        query, key, value = self.c_attn(x).split(self.n_embd, dim=-1)
        shape = (batch, steps, self.n_head, width // self.n_head)
        query = query.view(shape).transpose(1, 2)
        key = key.view(shape).transpose(1, 2)
        value = value.view(shape).transpose(1, 2)
        drop = self.p if self.training else 0.0
        mixed = F.scaled_dot_product_attention(
            query, key, value, dropout_p=drop, is_causal=True
        )
        mixed = mixed.transpose(1, 2).contiguous().view(batch, steps, width)
        return self.resid_dropout(self.c_proj(mixed))
