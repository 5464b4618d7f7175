# good: heads folded into the batch, bmm, helper methods, a mask repeated by broadcasting
# build: MultiHeadAttention(d_out, num_heads, dropout, bias)
# qkvo: m.W_q, m.W_k, m.W_v, m.W_o
# risk: return torch.softmax(scores.masked_fill(
# risk: self.attention_weights = masked_softmax(scores)
# skip: large
import math

import torch
from torch import nn


def masked_softmax(scores):
    steps = scores.shape[-1]
    position = torch.arange(steps, device=scores.device)
    visible = position[None, :] <= position[:, None]
    return torch.softmax(scores.masked_fill(~visible, -1e4), dim=-1)


class DotProductAttention(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, queries, keys, values):
        d = queries.shape[-1]
        scores = torch.bmm(queries, keys.transpose(1, 2)) / math.sqrt(d)
        self.attention_weights = masked_softmax(scores)
        return torch.bmm(self.dropout(self.attention_weights), values)


class MultiHeadAttention(nn.Module):
    def __init__(self, num_hiddens, num_heads, dropout, bias=False):
        super().__init__()
        assert num_hiddens % num_heads == 0
        self.num_heads = num_heads
        self.attention = DotProductAttention(dropout)
        self.W_q = nn.Linear(num_hiddens, num_hiddens, bias=bias)
        self.W_k = nn.Linear(num_hiddens, num_hiddens, bias=bias)
        self.W_v = nn.Linear(num_hiddens, num_hiddens, bias=bias)
        self.W_o = nn.Linear(num_hiddens, num_hiddens, bias=bias)

    def transpose_qkv(self, X):
        X = X.reshape(X.shape[0], X.shape[1], self.num_heads, -1)
        X = X.permute(0, 2, 1, 3)
        return X.reshape(-1, X.shape[2], X.shape[3])

    def transpose_output(self, X):
        X = X.reshape(-1, self.num_heads, X.shape[1], X.shape[2])
        X = X.permute(0, 2, 1, 3)
        return X.reshape(X.shape[0], X.shape[1], -1)

    def forward(self, queries, keys=None, values=None):
        keys = queries if keys is None else keys
        values = keys if values is None else values
        queries = self.transpose_qkv(self.W_q(queries))
        keys = self.transpose_qkv(self.W_k(keys))
        values = self.transpose_qkv(self.W_v(values))
        output = self.attention(queries, keys, values)
        return self.W_o(self.transpose_output(output))
