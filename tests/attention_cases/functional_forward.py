# good: Parameters named as in nn.MultiheadAttention, F.multi_head_attention_forward
# build: Functional(d_out, num_heads, dropout)
# qkvo: part((m.in_proj_weight, m.in_proj_bias), 0), part((m.in_proj_weight, m.in_proj_bias), 1), part((m.in_proj_weight, m.in_proj_bias), 2), (m.out_weight, m.out_bias)
import torch
import torch.nn.functional as F
from torch import nn


class Functional(nn.Module):
    def __init__(self, embed_dim, num_heads, dropout=0.0):
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError("embed_dim must be divisible by num_heads")
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.in_proj_weight = nn.Parameter(torch.empty(3 * embed_dim, embed_dim))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * embed_dim))
        self.out_weight = nn.Parameter(torch.empty(embed_dim, embed_dim))
        self.out_bias = nn.Parameter(torch.zeros(embed_dim))
        nn.init.xavier_uniform_(self.in_proj_weight)
        nn.init.xavier_uniform_(self.out_weight)

    def forward(self, x):
        steps = x.transpose(0, 1)
        length = steps.shape[0]
        blocked = torch.ones(length, length, device=x.device).triu(1).bool()
        output, _ = F.multi_head_attention_forward(
            steps, steps, steps, self.embed_dim, self.num_heads,
            self.in_proj_weight, self.in_proj_bias, None, None, False,
            self.dropout, self.out_weight, self.out_bias,
            training=self.training, attn_mask=blocked, need_weights=False,
        )  # fmt: skip
        return output.transpose(0, 1)
