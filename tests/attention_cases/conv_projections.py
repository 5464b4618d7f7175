# good: projections by Conv1d with kernel 1, channels before tokens, scores from (width, tokens) slabs
# build: ConvAttention(channels=d_out, n_heads=num_heads, p_dropout=dropout)
# qkvo: (m.conv_q.weight.squeeze(-1), m.conv_q.bias), (m.conv_k.weight.squeeze(-1), m.conv_k.bias), (m.conv_v.weight.squeeze(-1), m.conv_v.bias), (m.conv_o.weight.squeeze(-1), m.conv_o.bias)
# risk: scores = scores.masked_fill(ahead, -1e4)
# skip: large
import math

import torch
from torch import nn


class ConvAttention(nn.Module):
    def __init__(self, channels, n_heads, p_dropout=0.0):
        super().__init__()
        assert channels % n_heads == 0
        self.n_heads = n_heads
        self.k_channels = channels // n_heads
        self.conv_q = nn.Conv1d(channels, channels, 1)
        self.conv_k = nn.Conv1d(channels, channels, 1)
        self.conv_v = nn.Conv1d(channels, channels, 1)
        self.conv_o = nn.Conv1d(channels, channels, 1)
        self.drop = nn.Dropout(p_dropout)

    def forward(self, x):
        x = x.transpose(1, 2)
        b, d, t = x.size()
        query = self.conv_q(x).view(b, self.n_heads, self.k_channels, t)
        key = self.conv_k(x).view(b, self.n_heads, self.k_channels, t)
        value = self.conv_v(x).view(b, self.n_heads, self.k_channels, t)
        scores = torch.matmul(query.transpose(2, 3) / math.sqrt(self.k_channels), key)
        ahead = torch.ones(t, t, device=x.device, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(ahead, -1e4)
        p_attn = self.drop(torch.softmax(scores, dim=-1))
        output = torch.matmul(p_attn, value.transpose(2, 3))
        output = output.transpose(2, 3).contiguous().view(b, d, t)
        return self.conv_o(output).transpose(1, 2)
