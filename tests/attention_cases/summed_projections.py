# good: no joining: each head goes through its own columns of the output matrix, and the results are added
# build: SummedProjections(d_in, d_out, context_length, dropout, num_heads, qkv_bias=bias)
# qkvo: m.queries, m.keys, m.values, cat_columns([h for h in m.outs])
import torch
import torch.nn as nn


class SummedProjections(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        self.width, rest = divmod(d_out, num_heads)
        if rest:
            raise ValueError("d_out must be divisible by num_heads")
        self.queries = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.keys = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.values = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.outs = nn.ModuleList(
            nn.Linear(self.width, d_out, bias=False) for _ in range(num_heads)
        )
        self.dropout = nn.Dropout(dropout)
        hidden = torch.ones(context_length, context_length, dtype=torch.bool).triu(1)
        self.register_buffer("hidden", hidden)

    def forward(self, x):
        n = x.shape[1]
        total = 0
        qs = self.queries(x).split(self.width, dim=-1)
        ks = self.keys(x).split(self.width, dim=-1)
        vs = self.values(x).split(self.width, dim=-1)
        for q, k, v, out in zip(qs, ks, vs, self.outs):
            logits = torch.baddbmm(
                torch.zeros(1, device=x.device, dtype=x.dtype), q, k.mT, beta=0, alpha=self.width**-0.5
            )
            logits = logits.masked_fill(self.hidden[:n, :n], float("-inf"))
            weights = logits.log_softmax(dim=-1).exp()
            total = total + out(self.dropout(weights) @ v)
        return total
