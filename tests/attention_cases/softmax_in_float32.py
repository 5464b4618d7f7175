# good: softmax in float32 and back to the queries' dtype, rotary-free Llama names
# build: LlamaLikeAttention(LlamaLikeConfig(hidden_size=d_out, num_attention_heads=num_heads, attention_dropout=dropout, attention_bias=bias))
# qkvo: m.q_proj, m.k_proj, m.v_proj, m.o_proj
import math
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class LlamaLikeConfig:
    hidden_size: int = 32
    num_attention_heads: int = 4
    attention_dropout: float = 0.0
    attention_bias: bool = False

    @property
    def head_dim(self):
        return self.hidden_size // self.num_attention_heads


class LlamaLikeAttention(nn.Module):
    def __init__(self, config: LlamaLikeConfig):
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.head_dim = config.head_dim
        if self.num_heads * self.head_dim != config.hidden_size:
            raise ValueError("hidden_size is not num_attention_heads * head_dim")
        inner = self.num_heads * self.head_dim
        self.dropout = config.attention_dropout
        self.q_proj = nn.Linear(config.hidden_size, inner, bias=config.attention_bias)
        self.k_proj = nn.Linear(config.hidden_size, inner, bias=config.attention_bias)
        self.v_proj = nn.Linear(config.hidden_size, inner, bias=config.attention_bias)
        self.o_proj = nn.Linear(inner, config.hidden_size, bias=config.attention_bias)

    def forward(self, hidden_states):
        bsz, q_len, _ = hidden_states.size()
        states = (bsz, q_len, self.num_heads, self.head_dim)
        query = self.q_proj(hidden_states).view(states).transpose(1, 2)
        key = self.k_proj(hidden_states).view(states).transpose(1, 2)
        value = self.v_proj(hidden_states).view(states).transpose(1, 2)
        weights = torch.matmul(query, key.transpose(2, 3)) / math.sqrt(self.head_dim)
        causal = torch.full((q_len, q_len), float("-inf"), device=weights.device)
        causal = torch.triu(causal, diagonal=1).to(weights.dtype)
        weights = weights + causal
        weights = nn.functional.softmax(weights, dim=-1, dtype=torch.float32)
        weights = weights.to(query.dtype)
        weights = nn.functional.dropout(weights, p=self.dropout, training=self.training)
        output = torch.matmul(weights, value)
        output = output.transpose(1, 2).contiguous()
        output = output.reshape(bsz, q_len, -1)
        return self.o_proj(output), weights
