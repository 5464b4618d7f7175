# good: four cloned layers in a list, an attention function, the mask handed to forward
# build: MultiHeadedAttention(num_heads, d_out, dropout)
# call: m(x, x, x, mask=torch.ones(1, x.shape[1], x.shape[1], device=x.device).tril())
# qkvo: m.linears[0], m.linears[1], m.linears[2], m.linears[3]
import copy
import math

import torch
from torch import nn


def clones(module, n):
    return nn.ModuleList([copy.deepcopy(module) for _ in range(n)])


def attention(query, key, value, mask=None, dropout=None):
    """Scaled dot-product attention; mask is zero where attention is forbidden."""
    width = query.size(-1)
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(width)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min)
    p_attn = scores.softmax(dim=-1)
    if dropout is not None:
        p_attn = dropout(p_attn)
    return torch.matmul(p_attn, value), p_attn


class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model, dropout=0.1):
        super().__init__()
        assert d_model % h == 0
        self.d_k = d_model // h
        self.h = h
        self.linears = clones(nn.Linear(d_model, d_model), 4)
        self.attn = None
        self.dropout = nn.Dropout(p=dropout)
        with torch.no_grad():
            for linear in self.linears:
                nn.init.xavier_uniform_(linear.weight)

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            mask = mask.unsqueeze(1)
        nbatches = query.size(0)
        query, key, value = [
            lin(x).view(nbatches, -1, self.h, self.d_k).transpose(1, 2)
            for lin, x in zip(self.linears, (query, key, value))
        ]
        x, self.attn = attention(query, key, value, mask=mask, dropout=self.dropout)
        x = x.transpose(1, 2).contiguous().view(nbatches, -1, self.h * self.d_k)
        return self.linears[-1](x)
