# good: x repeated for the heads, batched by head
# build: Repeated(num_heads, d_in, head_dim, dropout)
# qkvo: (m.to_q.transpose(1, 2).flatten(0, 1), None), (m.to_k.transpose(1, 2).flatten(0, 1), None), (m.to_v.transpose(1, 2).flatten(0, 1), None), m.merge
import torch
from torch import nn


class Repeated(nn.Module):
    """x once for every head, and one matrix a head."""

    def __init__(self, n_head, d_model, d_head, dropout=0.0):
        super().__init__()
        self.n_head = n_head
        self.to_q = nn.Parameter(torch.randn(n_head, d_model, d_head) * d_model**-0.5)
        self.to_k = nn.Parameter(torch.randn(n_head, d_model, d_head) * d_model**-0.5)
        self.to_v = nn.Parameter(torch.randn(n_head, d_model, d_head) * d_model**-0.5)
        self.merge = nn.Linear(n_head * d_head, d_model)
        self.drop = nn.Dropout(dropout)

    def project(self, x, weight):
        batch, length, width = x.shape
        each = x.repeat(self.n_head, 1, 1).view(self.n_head, -1, width)
        return torch.bmm(each, weight).view(self.n_head * batch, length, -1)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k = self.project(x, self.to_q), self.project(x, self.to_k)
        v = self.project(x, self.to_v)
        score = torch.bmm(q, k.transpose(1, 2)) / q.size(-1) ** 0.5
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        share = self.drop(score.masked_fill(later, -torch.inf).softmax(dim=2))
        heads = torch.bmm(share, v)
        joined = torch.cat(heads.split(batch), dim=-1)
        return self.merge(joined)
