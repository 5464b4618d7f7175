# good: a mask argument that is refused in any shape but one
# build: ByCaller(d_out, num_heads, dropout)
# call: m(x, torch.ones(x.shape[0], 1, x.shape[1], x.shape[1], device=x.device).tril())
# qkvo: m.w_q, m.w_k, m.w_v, m.w_o
import torch
from torch import nn


class ByCaller(nn.Module):
    """mask: (sequences, 1, T, T), 1 where a query may look."""

    def __init__(self, d_model, h, dropout=0.1):
        super().__init__()
        assert d_model % h == 0
        self.h, self.d_k = h, d_model // h
        self.w_q, self.w_k = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.w_v, self.w_o = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def attend(self, query, key, value, mask):
        scores = torch.matmul(query, key.transpose(-2, -1)) / self.d_k**0.5
        if mask is not None:
            scores = scores.masked_fill(mask == 0, float("-inf"))
        weights = self.dropout(torch.softmax(scores, dim=-1))
        return torch.matmul(weights, value)

    def forward(self, x, mask=None):
        if mask is not None and tuple(mask.shape[:2]) != (x.shape[0], 1):
            raise ValueError("the mask must be (sequences, 1, tokens, tokens)")
        query, key, value = [
            layer(x).view(x.shape[0], -1, self.h, self.d_k).transpose(1, 2)
            for layer in (self.w_q, self.w_k, self.w_v)
        ]
        context = self.attend(query, key, value, mask)
        context = context.transpose(1, 2).reshape(x.shape[0], -1, self.h * self.d_k)
        return self.w_o(context)
