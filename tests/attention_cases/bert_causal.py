# good: BERT's layer names, an additive mask of finfo.min, all_head_size
# build: SelfAttention(Namespace(hidden_size=d_out, num_attention_heads=num_heads, attention_probs_dropout_prob=dropout))
# qkvo: m.query, m.key, m.value, m.dense
import math

import torch
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        if config.hidden_size % config.num_attention_heads != 0:
            raise ValueError("the hidden size is not a multiple of the heads")
        self.num_attention_heads = config.num_attention_heads
        self.attention_head_size = config.hidden_size // config.num_attention_heads
        self.all_head_size = self.num_attention_heads * self.attention_head_size
        self.query = nn.Linear(config.hidden_size, self.all_head_size)
        self.key = nn.Linear(config.hidden_size, self.all_head_size)
        self.value = nn.Linear(config.hidden_size, self.all_head_size)
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def transpose_for_scores(self, x):
        new_shape = x.size()[:-1] + (self.num_attention_heads, self.attention_head_size)
        return x.view(new_shape).permute(0, 2, 1, 3)

    def causal_bias(self, scores):
        n = scores.size(-1)
        future = torch.ones(n, n, dtype=scores.dtype, device=scores.device).triu(1)
        return future * torch.finfo(scores.dtype).min

    def forward(self, hidden_states):
        query_layer = self.transpose_for_scores(self.query(hidden_states))
        key_layer = self.transpose_for_scores(self.key(hidden_states))
        value_layer = self.transpose_for_scores(self.value(hidden_states))
        scores = torch.matmul(query_layer, key_layer.transpose(-1, -2))
        scores = scores / math.sqrt(self.attention_head_size)
        scores = scores + self.causal_bias(scores)
        probs = nn.Softmax(dim=-1)(scores)
        probs = self.dropout(probs)
        context = torch.matmul(probs, value_layer)
        context = context.permute(0, 2, 1, 3).contiguous()
        context = context.view(context.size()[:-2] + (self.all_head_size,))
        return self.dense(context)
