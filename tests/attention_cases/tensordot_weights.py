# good: tensordot with (d_in, heads, width) Parameters, tensors named by their axes
# build: Tensordot(d_in, d_out, context_length, num_heads, dropout)
# qkvo: (m.kernel_q.flatten(1).T, None), (m.kernel_k.flatten(1).T, None), (m.kernel_v.flatten(1).T, None), (m.kernel_o.flatten(0, 1).T, m.bias_o)
import torch
from torch import nn


class Tensordot(nn.Module):
    def __init__(self, d_in, d_out, context_length, num_heads, dropout=0.0):
        super().__init__()
        if d_out % num_heads:
            raise ValueError("d_out must be divisible by num_heads")
        depth = d_out // num_heads
        self.kernel_q = nn.Parameter(torch.empty(d_in, num_heads, depth))
        self.kernel_k = nn.Parameter(torch.empty(d_in, num_heads, depth))
        self.kernel_v = nn.Parameter(torch.empty(d_in, num_heads, depth))
        self.kernel_o = nn.Parameter(torch.empty(num_heads, depth, d_out))
        self.bias_o = nn.Parameter(torch.zeros(d_out))
        for kernel in (self.kernel_q, self.kernel_k, self.kernel_v, self.kernel_o):
            nn.init.normal_(kernel, std=0.3)
        self.root = depth**0.5
        self.drop = nn.Dropout(dropout)
        causal = torch.tril(torch.ones(1, 1, context_length, context_length))
        self.register_buffer("causal", causal)

    def forward(self, inputs):
        length = inputs.shape[1]
        q_bthd = torch.tensordot(inputs, self.kernel_q, dims=1)
        k_bthd = torch.tensordot(inputs, self.kernel_k, dims=1)
        v_bthd = torch.tensordot(inputs, self.kernel_v, dims=1)
        scores = torch.einsum("bqhd,bkhd->bhqk", q_bthd / self.root, k_bthd)
        big_negative = torch.finfo(scores.dtype).min
        causal = self.causal[:, :, :length, :length]
        scores = scores * causal + big_negative * (1 - causal)
        weights = self.drop(torch.softmax(scores, dim=-1))
        mixed = torch.einsum("bhqk,bkhd->bqhd", weights, v_bthd)
        return torch.tensordot(mixed, self.kernel_o, dims=2) + self.bias_o
