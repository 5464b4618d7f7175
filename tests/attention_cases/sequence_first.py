# good: tokens before batch inside, einsum over both token axes, batch put back at the end
# build: SequenceFirst(input_dim=d_in, embed_dim=d_out, n_heads=num_heads, dropout=dropout, bias=bias)
# qkvo: m.q_net, part(m.kv_net, 0, 2), part(m.kv_net, 1, 2), m.o_net
import torch
from torch import nn


class SequenceFirst(nn.Module):
    def __init__(self, input_dim, embed_dim, n_heads, dropout=0.0, bias=False):
        super().__init__()
        if embed_dim % n_heads:
            raise ValueError("embed_dim % n_heads must be 0")
        self.n_head = n_heads
        self.d_head = embed_dim // n_heads
        self.q_net = nn.Linear(input_dim, embed_dim, bias=bias)
        self.kv_net = nn.Linear(input_dim, 2 * embed_dim, bias=bias)
        self.o_net = nn.Linear(embed_dim, embed_dim, bias=False)
        self.dropatt = nn.Dropout(dropout)
        self.scale = 1 / (self.d_head**0.5)

    def forward(self, x):
        h = x.transpose(0, 1)
        qlen, bsz, _ = h.shape
        head_q = self.q_net(h).view(qlen, bsz, self.n_head, self.d_head)
        head_k, head_v = torch.chunk(self.kv_net(h), 2, -1)
        head_k = head_k.reshape(qlen, bsz, self.n_head, self.d_head)
        head_v = head_v.reshape(qlen, bsz, self.n_head, self.d_head)
        attn_score = torch.einsum("ibnd,jbnd->ijbn", head_q, head_k)
        attn_score = attn_score * self.scale
        later = torch.ones(qlen, qlen, device=x.device).triu(1).bool()
        attn_score = attn_score.masked_fill(later[:, :, None, None], float("-inf"))
        attn_prob = torch.softmax(attn_score, dim=1)
        attn_prob = self.dropatt(attn_prob)
        attn_vec = torch.einsum("ijbn,jbnd->ibnd", attn_prob, head_v)
        attn_vec = attn_vec.reshape(qlen, bsz, self.n_head * self.d_head)
        return self.o_net(attn_vec).transpose(0, 1)
