# good: three layers' weights put together in forward, the scale in them
# build: Folded(d_out, num_heads)
# qkvo: m.query, m.key, m.value, m.out
# sees: all
import torch
import torch.nn.functional as F
from torch import nn


class Folded(nn.Module):
    def __init__(self, n_state, n_head):
        super().__init__()
        assert n_state % n_head == 0
        self.n_head = n_head
        self.query = nn.Linear(n_state, n_state)
        self.key = nn.Linear(n_state, n_state)
        self.value = nn.Linear(n_state, n_state)
        self.out = nn.Linear(n_state, n_state)

    def forward(self, x):
        b, t, width = x.shape
        scale = (width // self.n_head) ** -0.5
        w = torch.cat([self.query.weight * scale, self.key.weight, self.value.weight])
        bias = torch.cat([self.query.bias * scale, self.key.bias, self.value.bias])
        q, k, v = F.linear(x, w, bias).view(b, t, 3, self.n_head, -1).unbind(2)
        scores = q.transpose(1, 2) @ k.permute(0, 2, 3, 1)
        return self.out((scores.softmax(-1) @ v.transpose(1, 2)).transpose(1, 2).flatten(2))
