# good: always causal, and a mask of padding beside it where one is given
# build: DecoderAttention(d_out, num_heads, context_length, dropout)
# padded: m(x, seen)
# qkvo: m.query, m.key, m.value, m.out
import torch
from torch import nn


class DecoderAttention(nn.Module):
    def __init__(self, d_model, nhead, max_len, dropout=0.0):
        super().__init__()
        assert d_model % nhead == 0
        self.nhead = nhead
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.out = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("causal", torch.ones(max_len, max_len).tril().bool())

    def forward(self, x, padding_mask=None):
        """padding_mask: (B, T), True for a word and False for padding."""
        b, t, c = x.shape
        q = self.query(x).view(b, t, self.nhead, -1).transpose(1, 2)
        k = self.key(x).view(b, t, self.nhead, -1).transpose(1, 2)
        v = self.value(x).view(b, t, self.nhead, -1).transpose(1, 2)
        visible = self.causal[:t, :t]
        if padding_mask is not None:
            visible = visible & padding_mask[:, None, None, :]
        scores = q @ k.transpose(-2, -1) / q.size(-1) ** 0.5
        scores = scores.masked_fill(~visible, float("-inf"))
        weights = self.dropout(scores.softmax(dim=-1))
        return self.out((weights @ v).transpose(1, 2).reshape(b, t, c))
