# good: token by token over its prefix, so no mask is needed
# build: PrefixAttention(d_model=d_out, n_heads=num_heads, dropout=dropout)
# qkvo: m.project["query"], m.project["key"], m.project["value"], m.project["out"]
import math

import torch
from torch import nn


class PrefixAttention(nn.Module):
    def __init__(self, d_model, n_heads, dropout=0.0):
        super().__init__()
        if d_model % n_heads != 0:
            raise ValueError(f"d_model={d_model} with n_heads={n_heads}")
        self.n_heads = n_heads
        self.project = nn.ModuleDict(
            {name: nn.Linear(d_model, d_model) for name in ("query", "key", "value", "out")}
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        heads = (self.n_heads, x.size(-1) // self.n_heads)
        query = self.project["query"](x).unflatten(-1, heads)
        key = self.project["key"](x).unflatten(-1, heads)
        value = self.project["value"](x).unflatten(-1, heads)
        rows = []
        for now in range(x.size(1)):
            past_keys, past_values = key[:, : now + 1], value[:, : now + 1]
            score = (query[:, now : now + 1] * past_keys).sum(-1)
            score = score / math.sqrt(heads[1])
            weight = self.dropout(score.softmax(dim=1))
            rows.append((weight.unsqueeze(-1) * past_values).sum(1))
        context = torch.stack(rows, dim=1)
        context = context.flatten(2)
        return self.project["out"](context)
