# good: an argument that switches heads off, which is no mask over tokens
# build: WithHeadMask(d_out, num_heads, context_length, dropout)
# qkvo: m.query, m.key, m.value, m.dense
import torch
from torch import nn
from torch.nn import functional as F


class WithHeadMask(nn.Module):
    """head_mask switches whole heads off; the attention itself is causal."""

    def __init__(self, hidden, n_heads, max_positions, dropout=0.0):
        super().__init__()
        if hidden % n_heads:
            raise ValueError("n_heads must divide hidden")
        self.n_heads = n_heads
        self.query, self.key = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.value, self.dense = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("see", torch.ones(max_positions, max_positions).tril().bool())

    def forward(self, states, head_mask=None):
        length = states.size(1)
        parts = (self.query(states), self.key(states), self.value(states))
        q, k, v = (p.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for p in parts)
        scores = q @ k.mT / q.size(-1) ** 0.5
        scores = scores.masked_fill(~self.see[:length, :length], float("-inf"))
        weights = self.dropout(F.softmax(scores, dim=-1))
        if head_mask is not None:
            weights = weights * head_mask
        return self.dense((weights @ v).transpose(1, 2).flatten(2))
