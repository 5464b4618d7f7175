# good: one qkv layer, reshape to (batch, tokens, 3, heads, width), permute and unbind
# build: Attention(d_in, d_out, num_heads, context_length, qkv_bias=bias, attn_drop=dropout)
# qkvo: part(m.qkv, 0), part(m.qkv, 1), part(m.qkv, 2), m.proj
import torch
import torch.nn as nn


class Attention(nn.Module):
    def __init__(self, d_in, d_out, num_heads, context_length, qkv_bias=False, attn_drop=0.0):
        super().__init__()
        if d_out % num_heads:
            raise ValueError(f"d_out ({d_out}) % num_heads ({num_heads}) is not 0")
        self.num_heads = num_heads
        head_dim = d_out // num_heads
        self.scale = head_dim**-0.5
        self.qkv = nn.Linear(d_in, d_out * 3, bias=qkv_bias)
        self.attn_drop = nn.Dropout(attn_drop)
        self.proj = nn.Linear(d_out, d_out)
        lower = torch.tril(torch.ones(context_length, context_length))
        self.register_buffer("lower", lower)

    def forward(self, x):
        B, N, _ = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, -1)
        qkv = qkv.permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        attn = (q * self.scale) @ k.transpose(-2, -1)
        attn = attn.masked_fill(self.lower[:N, :N] == 0, float("-inf"))
        attn = attn.softmax(dim=-1)
        attn = self.attn_drop(attn)
        x = (attn @ v).transpose(1, 2)
        x = x.reshape(B, N, -1)
        return self.proj(x)
