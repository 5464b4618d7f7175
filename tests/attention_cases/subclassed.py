# good: a base class with the plumbing, a subclass with the mask, the output layer in a Sequential with dropout
# build: CausalAttention(d_in, d_out, num_heads, attn_p=dropout, proj_p=dropout)
# qkvo: m.to_q, part(m.to_kv, 0, 2), part(m.to_kv, 1, 2), m.to_out[0]
# also_drops: to_out.1
import torch
from torch import nn


class BaseAttention(nn.Module):
    def __init__(self, d_in, d_out, num_heads, attn_p=0.0, proj_p=0.0):
        super().__init__()
        if d_out % num_heads:
            raise ValueError("d_out must be divisible by num_heads")
        self.to_q = nn.Linear(d_in, d_out, bias=False)
        self.to_kv = nn.Linear(d_in, 2 * d_out, bias=False)
        self.open = nn.Unflatten(-1, (num_heads, d_out // num_heads))
        self.to_out = nn.Sequential(nn.Linear(d_out, d_out), nn.Dropout(proj_p))
        self.attn_dropout = nn.Dropout(attn_p)

    def hide(self, scores):
        return scores

    def forward(self, x):
        q = self.open(self.to_q(x)).transpose(1, 2)
        k, v = (self.open(t).transpose(1, 2) for t in self.to_kv(x).chunk(2, dim=-1))
        scores = torch.einsum("bhid,bhjd->bhij", q, k) * q.shape[-1] ** -0.5
        attention = self.attn_dropout(self.hide(scores).softmax(dim=-1))
        out = torch.einsum("bhij,bhjd->bhid", attention, v)
        out = out.transpose(1, 2).flatten(-2)
        return self.to_out(out)


class CausalAttention(BaseAttention):
    def hide(self, scores):
        i, j = scores.shape[-2:]
        causal = torch.ones(i, j, dtype=torch.bool, device=scores.device).triu(j - i + 1)
        return scores.masked_fill(causal, -torch.finfo(scores.dtype).max)
