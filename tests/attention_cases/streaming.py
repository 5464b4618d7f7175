# good: softmax in one pass over the keys with a running maximum and sum, no weights kept
# build: Streaming(d_model=d_out, n_head=num_heads)
# qkvo: m.w_q, m.w_k, m.w_v, m.w_o
import math

import torch
from torch import nn


class Streaming(nn.Module):
    def __init__(self, d_model, n_head):
        super().__init__()
        assert d_model % n_head == 0
        self.n_head = n_head
        self.w_q = nn.Linear(d_model, d_model, bias=False)
        self.w_k = nn.Linear(d_model, d_model, bias=False)
        self.w_v = nn.Linear(d_model, d_model, bias=False)
        self.w_o = nn.Linear(d_model, d_model)

    def forward(self, x):
        b, t, d = x.shape
        shape = (b, t, self.n_head, d // self.n_head)
        q = self.w_q(x).view(shape).transpose(1, 2)
        k = self.w_k(x).view(shape).transpose(1, 2)
        v = self.w_v(x).view(shape).transpose(1, 2)
        q = q / math.sqrt(shape[-1])
        rows = torch.arange(t, device=x.device)
        top = torch.full_like(q[..., :1], torch.finfo(q.dtype).min)
        total = torch.zeros_like(top)
        mixed = torch.zeros_like(q)
        for j in range(t):
            score = (q * k[:, :, j : j + 1]).sum(-1, keepdim=True)
            visible = (rows >= j)[:, None]
            score = score.masked_fill(~visible, torch.finfo(q.dtype).min)
            higher = torch.maximum(top, score)
            shrink = torch.exp(top - higher)
            share = torch.exp(score - higher) * visible
            total = total * shrink + share
            mixed = mixed * shrink + share * v[:, :, j : j + 1]
            top = higher
        context = mixed / total
        return self.w_o(context.transpose(1, 2).reshape(b, t, d))
