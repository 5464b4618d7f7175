# good: queries in blocks of two, each block against the keys up to its end
# build: Blockwise(num_hiddens=d_out, num_heads=num_heads, max_length=context_length, attn_dropout=dropout)
# qkvo: m.to_q, m.to_k, m.to_v, m.to_o
import torch
import torch.nn as nn


class Blockwise(nn.Module):
    block = 2

    def __init__(self, num_hiddens, num_heads, max_length, attn_dropout=0.0):
        super().__init__()
        if num_hiddens % num_heads:
            raise ValueError("num_hiddens must be divisible by num_heads")
        self.num_heads = num_heads
        self.to_q = nn.Linear(num_hiddens, num_hiddens)
        self.to_k = nn.Linear(num_hiddens, num_hiddens)
        self.to_v = nn.Linear(num_hiddens, num_hiddens)
        self.to_o = nn.Linear(num_hiddens, num_hiddens)
        self.attn_dropout = nn.Dropout(attn_dropout)
        self.register_buffer("forbidden", torch.ones(max_length, max_length).triu(1).bool())

    def forward(self, x):
        heads = lambda t: t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # noqa: E731
        q, k, v = heads(self.to_q(x)), heads(self.to_k(x)), heads(self.to_v(x))
        length, pieces = x.shape[1], []
        for start in range(0, length, self.block):
            stop = min(start + self.block, length)
            score = q[:, :, start:stop] @ k[:, :, :stop].mT * k.shape[-1] ** -0.5
            score = score.masked_fill(self.forbidden[start:stop, :stop], -torch.inf)
            weight = self.attn_dropout(score.softmax(-1))
            pieces.append(weight @ v[:, :, :stop])
        context = torch.cat(pieces, dim=2)
        return self.to_o(context.transpose(1, 2).flatten(2))
