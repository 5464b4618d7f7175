# good: weights as exp(score - logsumexp), the mask by a comparison of positions
# build: LogSpace(d_in, d_out, num_heads, dropout)
# qkvo: part(m.packed, 0), part(m.packed, 1), part(m.packed, 2), m.final
import torch
import torch.nn.functional as F
from torch import nn


class LogSpace(nn.Module):
    def __init__(self, d_in, d_out, num_heads, dropout=0.0):
        super().__init__()
        if d_out % num_heads:
            raise ValueError("d_out must be divisible by num_heads")
        self.num_heads, self.dropout = num_heads, dropout
        self.packed = nn.Linear(d_in, 3 * d_out, bias=False)
        self.final = nn.Linear(d_out, d_out)

    def forward(self, x):
        batch, length = x.shape[:2]
        packed = self.packed(x).view(batch, length, 3, self.num_heads, -1)
        q, k, v = packed.permute(2, 0, 3, 1, 4)
        score = torch.einsum("...id,...jd->...ij", q, k).div(q.shape[-1] ** 0.5)
        position = torch.arange(length, device=x.device)
        future = position.view(1, -1) > position.view(-1, 1)
        score = score.masked_fill(future, float("-inf"))
        weight = torch.exp(score - torch.logsumexp(score, dim=-1, keepdim=True))
        weight = F.dropout(weight, self.dropout, self.training)
        result = torch.einsum("...ij,...jd->...id", weight, v)
        result = result.transpose(1, 2).reshape(batch, length, -1)
        return self.final(result)
