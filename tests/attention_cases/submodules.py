# good: small modules: queries, keys and values together, the core, and the merge
# build: Attention(d_model=d_out, num_heads=num_heads, context_length=context_length, dropout=dropout, bias=bias)
# qkvo: m.queries.linear, m.pair.key, m.pair.value, m.merge.linear
import torch
from torch import nn


class Queries(nn.Module):
    def __init__(self, d_model, num_heads, bias):
        super().__init__()
        self.num_heads = num_heads
        self.linear = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, x):
        b, t, d = x.shape
        return self.linear(x).view(b, t, self.num_heads, d // self.num_heads)


class KeysAndValues(nn.Module):
    def __init__(self, d_model, num_heads, bias):
        super().__init__()
        self.num_heads = num_heads
        self.key = nn.Linear(d_model, d_model, bias=bias)
        self.value = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, x):
        b, t, d = x.shape
        shape = (b, t, self.num_heads, d // self.num_heads)
        return self.key(x).view(shape), self.value(x).view(shape)


class ScaledDotProduct(nn.Module):
    def __init__(self, context_length, dropout):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("allowed", torch.ones(context_length, context_length).tril())

    def forward(self, q, k, v):
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        t = q.shape[2]
        scores = q @ k.transpose(2, 3) / q.shape[3] ** 0.5
        scores = scores.masked_fill(self.allowed[:t, :t].eq(0), float("-inf"))
        weights = self.dropout(torch.softmax(scores, -1))
        return weights @ v


class Merge(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.linear = nn.Linear(d_model, d_model)

    def forward(self, heads):
        b, h, t, w = heads.shape
        joined = heads.transpose(1, 2).contiguous()
        joined = joined.view(b, t, h * w)
        return self.linear(joined)


class Attention(nn.Module):
    def __init__(self, d_model, num_heads, context_length, dropout=0.0, bias=False):
        super().__init__()
        assert d_model % num_heads == 0
        self.queries = Queries(d_model, num_heads, bias)
        self.pair = KeysAndValues(d_model, num_heads, bias)
        self.core = ScaledDotProduct(context_length, dropout)
        self.merge = Merge(d_model)

    def forward(self, x):
        q = self.queries(x)
        k, v = self.pair(x)
        return self.merge(self.core(q, k, v))


if __name__ == "__main__":
    torch.manual_seed(0)
    print(Attention(8, 2, 6)(torch.randn(1, 6, 8)).shape)
