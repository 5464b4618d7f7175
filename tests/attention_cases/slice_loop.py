# good: one wide layer each, a loop that cuts each head out of the width
# build: SlicedHeads(d_in, d_out, context_length, dropout, num_heads, qkv_bias=bias)
# qkvo: m.wq, m.wk, m.wv, m.wo
import torch
import torch.nn as nn


class SlicedHeads(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        assert d_out % num_heads == 0, "uneven heads"
        self.num_heads = num_heads
        self.size = d_out // num_heads
        self.wq = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.wk = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.wv = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.wo = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        ones = torch.ones(context_length, context_length, dtype=torch.bool)
        self.register_buffer("future", torch.triu(ones, diagonal=1))

    def forward(self, x):
        steps = x.shape[1]
        q_all, k_all, v_all = self.wq(x), self.wk(x), self.wv(x)
        outputs = []
        for head in range(self.num_heads):
            start = head * self.size
            stop = start + self.size
            q = q_all[..., start:stop]
            k = k_all[..., start:stop]
            v = v_all[..., start:stop]
            score = q @ k.transpose(-1, -2)
            score = score / self.size**0.5
            score = score.masked_fill(self.future[:steps, :steps], -torch.inf)
            weight = torch.softmax(score, dim=-1)
            outputs.append(self.dropout(weight) @ v)
        joined = torch.cat(outputs, dim=-1)
        return self.wo(joined)
