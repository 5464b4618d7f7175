# good: scores with keys on rows, mask and softmax turned accordingly
# build: Columnwise(d_in, d_out, context_length, dropout, num_heads, qkv_bias=bias)
# qkvo: m.lin_q, m.lin_k, m.lin_v, m.lin_out
import torch
import torch.nn as nn


class Columnwise(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        if d_out % num_heads != 0:
            raise ValueError("d_out / num_heads must be whole")
        self.num_heads = num_heads
        self.lin_q = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.lin_k = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.lin_v = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.lin_out = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        below = torch.ones(context_length, context_length).tril(-1).bool()
        self.register_buffer("below", below)

    def forward(self, x):
        b, t, _ = x.shape
        q = self.lin_q(x).view(b, t, self.num_heads, -1).permute(0, 2, 3, 1)
        k = self.lin_k(x).view(b, t, self.num_heads, -1).permute(0, 2, 1, 3)
        v = self.lin_v(x).view(b, t, self.num_heads, -1).permute(0, 2, 3, 1)
        score = k @ q / q.size(2) ** 0.5
        score = score.masked_fill(self.below[:t, :t], float("-inf"))
        weight = score.softmax(dim=2)
        context = v @ self.dropout(weight)
        context = context.permute(0, 3, 1, 2)
        return self.lin_out(context.reshape(b, t, -1))
