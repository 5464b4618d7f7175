# good: the mask is the logarithm of a lower triangle, added to the scores
# build: LogMask(d_in, d_out, context_length, num_heads, dropout)
# qkvo: m.layer_q, m.layer_k, m.layer_v, m.layer_o
import torch
from torch import nn


class LogMask(nn.Module):
    def __init__(self, d_in, d_out, context_length, num_heads, dropout=0.0):
        super().__init__()
        if d_out % num_heads > 0:
            raise ValueError("d_out must be divisible by num_heads")
        self.shape = (num_heads, d_out // num_heads)
        self.layer_q = nn.Linear(d_in, d_out, bias=False)
        self.layer_k = nn.Linear(d_in, d_out, bias=False)
        self.layer_v = nn.Linear(d_in, d_out, bias=False)
        self.layer_o = nn.Linear(d_out, d_out, bias=False)
        self.softmax = nn.Softmax(dim=-1)
        self.dropout = nn.Dropout(dropout)
        triangle = torch.ones(context_length, context_length).tril()
        self.register_buffer("log_mask", triangle.log())

    def forward(self, x):
        t = x.shape[-2]
        q, k, v = (
            layer(x).unflatten(-1, self.shape).transpose(-2, -3)
            for layer in (self.layer_q, self.layer_k, self.layer_v)
        )
        scores = q.matmul(k.transpose(-1, -2)) * self.shape[1] ** -0.5
        scores = scores + self.log_mask[:t, :t]
        context = self.dropout(self.softmax(scores)).matmul(v)
        context = context.transpose(-2, -3).flatten(-2)
        return self.layer_o(context)
