# good: transposed Conv1D weights, helper methods, torch.where with the dtype's lowest number, a tuple out
# build: GPT2Attention(GPT2Config(hidden_size=d_out, num_attention_heads=num_heads, max_position_embeddings=context_length, attn_pdrop=dropout, resid_pdrop=dropout))
# qkvo: part((m.c_attn.weight.T, m.c_attn.bias), 0), part((m.c_attn.weight.T, m.c_attn.bias), 1), part((m.c_attn.weight.T, m.c_attn.bias), 2), (m.c_proj.weight.T, m.c_proj.bias)
# also_drops: resid_dropout
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class GPT2Config:
    hidden_size: int = 48
    num_attention_heads: int = 4
    max_position_embeddings: int = 64
    attn_pdrop: float = 0.1
    resid_pdrop: float = 0.1


class Conv1D(nn.Module):
    """A linear layer whose weight is stored (inputs, outputs)."""

    def __init__(self, nf, nx):
        super().__init__()
        self.nf = nf
        self.weight = nn.Parameter(torch.empty(nx, nf))
        self.bias = nn.Parameter(torch.zeros(nf))
        nn.init.normal_(self.weight, std=0.2)

    def forward(self, x):
        out = torch.addmm(self.bias, x.reshape(-1, x.size(-1)), self.weight)
        return out.view(*x.shape[:-1], self.nf)


class GPT2Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed_dim = config.hidden_size
        self.num_heads = config.num_attention_heads
        self.head_dim = self.embed_dim // self.num_heads
        if self.head_dim * self.num_heads != self.embed_dim:
            raise ValueError("hidden_size must be divisible by num_attention_heads")
        n = config.max_position_embeddings
        self.register_buffer(
            "bias", torch.ones(n, n, dtype=torch.bool).tril().view(1, 1, n, n)
        )
        self.c_attn = Conv1D(3 * self.embed_dim, self.embed_dim)
        self.c_proj = Conv1D(self.embed_dim, self.embed_dim)
        self.attn_dropout = nn.Dropout(config.attn_pdrop)
        self.resid_dropout = nn.Dropout(config.resid_pdrop)

    def _split_heads(self, tensor):
        tensor = tensor.view(*tensor.size()[:-1], self.num_heads, self.head_dim)
        return tensor.permute(0, 2, 1, 3)

    def _merge_heads(self, tensor):
        tensor = tensor.permute(0, 2, 1, 3).contiguous()
        return tensor.view(*tensor.size()[:-2], self.num_heads * self.head_dim)

    def _attn(self, query, key, value):
        weights = torch.matmul(query, key.transpose(-1, -2)) / self.head_dim**0.5
        q_len, k_len = query.size(-2), key.size(-2)
        visible = self.bias[:, :, k_len - q_len : k_len, :k_len]
        lowest = torch.full([], torch.finfo(weights.dtype).min, dtype=weights.dtype)
        weights = torch.where(visible, weights, lowest.to(weights.device))
        weights = nn.functional.softmax(weights, dim=-1)
        weights = self.attn_dropout(weights)
        return torch.matmul(weights, value), weights

    def forward(self, hidden_states):
        packed = self.c_attn(hidden_states)
        query, key, value = packed.split(self.embed_dim, dim=2)
        query = self._split_heads(query)
        key = self._split_heads(key)
        value = self._split_heads(value)
        output, weights = self._attn(query, key, value)
        output = self._merge_heads(output)
        output = self.resid_dropout(self.c_proj(output))
        return output, weights
