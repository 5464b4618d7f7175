# good: the scale is folded into the query weights at each forward; F.linear with Parameters
# build: ScaledWeights(d_in, d_out, num_heads, max_seq_len=context_length, dropout_rate=dropout)
# qkvo: (m.query_weight, m.query_bias), (m.key_weight, None), (m.value_weight, None), (m.output_weight, m.output_bias)
import torch
import torch.nn.functional as F
from torch import nn


def glorot(rows, columns):
    weight = torch.empty(rows, columns)
    nn.init.xavier_normal_(weight)
    return nn.Parameter(weight)


class ScaledWeights(nn.Module):
    def __init__(self, d_in, d_out, num_heads, max_seq_len, dropout_rate=0.0):
        super().__init__()
        if d_out % num_heads:
            raise ValueError("d_out is not a multiple of num_heads")
        self.num_heads, self.dropout_rate = num_heads, dropout_rate
        self.query_weight = glorot(d_out, d_in)
        self.query_bias = nn.Parameter(torch.randn(d_out))
        self.key_weight = glorot(d_out, d_in)
        self.value_weight = glorot(d_out, d_in)
        self.output_weight = glorot(d_out, d_out)
        self.output_bias = nn.Parameter(torch.zeros(d_out))
        self.register_buffer("visible", torch.ones(max_seq_len, max_seq_len).tril().bool())

    def forward(self, x):
        B, L, _ = x.shape
        head_dim = self.query_weight.shape[0] // self.num_heads
        scale = head_dim**-0.5
        q = F.linear(x, self.query_weight * scale, self.query_bias * scale)
        k = F.linear(x, self.key_weight)
        v = F.linear(x, self.value_weight)
        q, k, v = [z.view(B, L, -1, head_dim).transpose(1, 2) for z in (q, k, v)]
        logits = q @ k.mT
        hidden = ~self.visible[:L, :L]
        logits = torch.where(hidden, torch.finfo(logits.dtype).min, logits)
        weights = F.dropout(logits.softmax(-1), self.dropout_rate, self.training)
        y = (weights @ v).transpose(1, 2)
        y = y.reshape(B, L, -1)
        return F.linear(y, self.output_weight, self.output_bias)
