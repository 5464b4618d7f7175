# good: tokens first, sequences second, outside as well as inside
# build: TokensFirst(d_out, num_heads, dropout)
# call: m(x.transpose(0, 1)).transpose(0, 1)
# qkvo: m.ask, m.answer, m.content, m.mix
import torch
from torch import nn


class TokensFirst(nn.Module):
    """Takes and returns (tokens, sequences, features)."""

    def __init__(self, width, heads, dropout=0.0):
        super().__init__()
        if width % heads:
            raise ValueError("heads must divide width")
        self.heads, self.each = heads, width // heads
        self.ask = nn.Linear(width, width)
        self.answer = nn.Linear(width, width)
        self.content = nn.Linear(width, width)
        self.mix = nn.Linear(width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, inputs):
        length, batch, width = inputs.shape
        rows = batch * self.heads
        asked = self.ask(inputs).view(length, rows, self.each).transpose(0, 1)
        given = self.answer(inputs).view(length, rows, self.each).transpose(0, 1)
        held = self.content(inputs).view(length, rows, self.each).transpose(0, 1)
        fit = torch.bmm(asked, given.mT) * self.each**-0.5
        ahead = torch.ones(length, length, device=inputs.device).triu(1) > 0
        share = self.drop(fit.masked_fill(ahead, -torch.inf).softmax(-1))
        mixed = torch.bmm(share, held).transpose(0, 1).reshape(length, batch, width)
        return self.mix(mixed)
