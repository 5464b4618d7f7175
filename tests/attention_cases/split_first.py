# good: the heads split first, einsum with letters of its own, a lower triangle compared with 0
# build: SplitFirst(embed_size=d_out, heads=num_heads, max_len=context_length, dropout=dropout)
# qkvo: m.queries, m.keys, m.values, m.fc_out
import torch
import torch.nn as nn


class SplitFirst(nn.Module):
    def __init__(self, embed_size, heads, max_len, dropout=0.0):
        super().__init__()
        self.heads = heads
        self.head_dim = embed_size // heads
        if self.head_dim * heads != embed_size:
            raise ValueError("embed_size needs to be divisible by heads")
        self.values = nn.Linear(embed_size, embed_size, bias=False)
        self.keys = nn.Linear(embed_size, embed_size, bias=False)
        self.queries = nn.Linear(embed_size, embed_size, bias=False)
        self.fc_out = nn.Linear(embed_size, embed_size)
        self.drop = nn.Dropout(dropout)
        self.register_buffer("tri", torch.tril(torch.ones(max_len, max_len)))

    def forward(self, x):
        N, length, _ = x.shape
        values = self.values(x).reshape(N, length, self.heads, self.head_dim)
        keys = self.keys(x).reshape(N, length, self.heads, self.head_dim)
        queries = self.queries(x).reshape(N, length, self.heads, self.head_dim)
        energy = torch.einsum("nqhd,nkhd->nhqk", queries, keys)
        energy = energy / self.head_dim ** (1 / 2)
        energy = energy.masked_fill(self.tri[:length, :length] == 0, float("-inf"))
        attention = self.drop(torch.softmax(energy, dim=3))
        out = torch.einsum("nhql,nlhd->nqhd", attention, values)
        out = out.reshape(N, length, self.heads * self.head_dim)
        return self.fc_out(out)
