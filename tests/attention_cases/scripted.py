# good: the scores scaled by a helper that is compiled
# build: ScriptedAttention(d_out, num_heads, context_length)
# qkvo: part(m.qkv, 0), part(m.qkv, 1), part(m.qkv, 2), m.proj
import torch
from torch import nn


@torch.jit.script
def scaled(scores: torch.Tensor, width: int) -> torch.Tensor:
    return scores / width**0.5


class ScriptedAttention(nn.Module):
    def __init__(self, dim, heads, max_len):
        super().__init__()
        assert dim % heads == 0
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        future = torch.ones(max_len, max_len, dtype=torch.bool).triu(1)
        self.register_buffer("future", future)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = scaled(q @ k.transpose(-2, -1), q.shape[-1])
        scores = scores.masked_fill(self.future[:t, :t], float("-inf"))
        out = scores.softmax(-1) @ v
        return self.proj(out.transpose(1, 2).reshape(b, t, c))
