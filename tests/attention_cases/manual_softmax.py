# good: softmax written out: minus the largest visible score, exp, divided by the sum
# build: HandMade(d_in, d_out, context_length, dropout, num_heads)
# qkvo: m.proj_q, m.proj_k, m.proj_v, m.proj_o
import torch
import torch.nn as nn


class HandMade(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads):
        super().__init__()
        assert d_out % num_heads == 0
        self.H, self.D = num_heads, d_out // num_heads
        self.proj_q = nn.Linear(d_in, d_out, bias=False)
        self.proj_k = nn.Linear(d_in, d_out, bias=False)
        self.proj_v = nn.Linear(d_in, d_out, bias=False)
        self.proj_o = nn.Linear(d_out, d_out, bias=False)
        self.drop = nn.Dropout(dropout)
        self.register_buffer("tri", torch.ones(context_length, context_length).tril())

    def forward(self, x):
        B, T, _ = x.shape
        q = self.proj_q(x).view(B, T, self.H, self.D).permute(0, 2, 1, 3)
        k_t = self.proj_k(x).view(B, T, self.H, self.D).permute(0, 2, 3, 1)
        v = self.proj_v(x).view(B, T, self.H, self.D).permute(0, 2, 1, 3)
        s = torch.matmul(q, k_t).div(self.D**0.5)
        s = s.masked_fill(self.tri[:T, :T] < 0.5, float("-inf"))
        top = s.amax(dim=-1, keepdim=True)
        e = torch.exp(s - top)
        total = e.sum(dim=-1, keepdim=True)
        p = self.drop(e / total)
        c = torch.matmul(p, v).permute(0, 2, 1, 3)
        return self.proj_o(c.reshape(B, T, self.H * self.D))
