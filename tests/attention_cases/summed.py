# good: Parameters with a head axis, a loop that adds what each head gives
# build: Summed(num_heads, d_out, head_dim)
# qkvo: *((w.mT.flatten(0, 1), None) for w in (m.wq, m.wk, m.wv)), (torch.cat([w.T for w in m.wo], 1), m.bias)
# sees: all
# skip: divisible
import torch
import torch.nn.functional as F
from torch import nn


class Summed(nn.Module):
    def __init__(self, n_heads, d_model, d_head):
        super().__init__()
        sizes = [(n_heads, d_model, d_head)] * 3
        self.wq, self.wk, self.wv = (nn.Parameter(torch.randn(s) / 4) for s in sizes)
        self.wo = nn.ParameterList(torch.randn(d_head, d_model) / 4 for _ in range(n_heads))
        self.bias = nn.Parameter(torch.randn(d_model))

    def forward(self, x):
        total = self.bias
        for h, wo in enumerate(self.wo):
            scores = (x @ self.wq[h]) @ (x @ self.wk[h]).mT
            weights = torch.softmax(scores / self.wq.shape[-1] ** 0.5, dim=-1)
            total = total + weights @ (x @ self.wv[h]) @ wo
        return total
