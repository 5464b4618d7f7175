# good: the heads run in reverse order inside and are put back before they are joined
# build: Mirrored(d_in, d_out, context_length, dropout, num_heads, qkv_bias=bias)
# qkvo: m.Wq, m.Wk, m.Wv, m.Wo
import torch
import torch.nn as nn


class Mirrored(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        self.dim_head, odd = divmod(d_out, num_heads)
        assert odd == 0, "d_out must be a multiple of num_heads"
        self.Wq = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.Wk = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.Wv = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.Wo = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        index = torch.arange(context_length)
        self.register_buffer("hidden", index.unsqueeze(0) > index.unsqueeze(1))

    def _open(self, t):
        return t.unflatten(-1, (-1, self.dim_head)).flip(-2).transpose(1, 2)

    def _close(self, t):
        return t.transpose(1, 2).flip(-2).flatten(-2)

    def forward(self, x):
        n = x.shape[1]
        q, k, v = self._open(self.Wq(x)), self._open(self.Wk(x)), self._open(self.Wv(x))
        a = (q @ k.mT) / self.dim_head**0.5
        a = torch.where(self.hidden[:n, :n], -torch.inf, a)
        a = self.dropout(torch.softmax(a, dim=-1))
        return self.Wo(self._close(a @ v))
