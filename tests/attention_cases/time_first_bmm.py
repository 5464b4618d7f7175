# good: tokens, batch, channels; heads folded beside the batch by one view; in-place scaling of q
# build: TimeBatchChannel(embed_dim=d_out, num_heads=num_heads, dropout=dropout, bias=bias)
# qkvo: m.q_proj, m.k_proj, m.v_proj, m.out_proj
import torch
import torch.nn.functional as F
from torch import nn


class TimeBatchChannel(nn.Module):
    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=True):
        super().__init__()
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.head_dim = embed_dim // num_heads
        assert self.head_dim * num_heads == self.embed_dim
        self.scaling = self.head_dim**-0.5
        self.k_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.v_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)

    def fold(self, tensor, length, bsz):
        tensor = tensor.contiguous().view(length, bsz * self.num_heads, self.head_dim)
        return tensor.transpose(0, 1)

    def forward(self, x):
        x = x.transpose(0, 1)
        tgt_len, bsz, embed_dim = x.size()
        q = self.q_proj(x)
        k = self.k_proj(x)
        v = self.v_proj(x)
        q = q * self.scaling
        q = self.fold(q, tgt_len, bsz)
        k = self.fold(k, tgt_len, bsz)
        v = self.fold(v, tgt_len, bsz)
        attn_weights = torch.bmm(q, k.transpose(1, 2))
        future = torch.full((tgt_len, tgt_len), float("-inf")).triu(1)
        attn_weights = attn_weights + future.to(attn_weights)
        attn_weights = F.softmax(attn_weights, dim=-1)
        attn_probs = F.dropout(attn_weights, p=self.dropout, training=self.training)
        attn = torch.bmm(attn_probs, v)
        attn = attn.transpose(0, 1).contiguous().view(tgt_len, bsz, embed_dim)
        attn = self.out_proj(attn)
        return attn.transpose(0, 1), attn_weights.view(bsz, -1, tgt_len, tgt_len)
