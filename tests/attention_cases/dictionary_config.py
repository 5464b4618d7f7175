# good: the book's configuration dictionary, the class in a file with the rest of its block
# build: MultiHeadAttention({"emb_dim": d_out, "n_heads": num_heads, "context_length": context_length, "drop_rate": dropout, "qkv_bias": bias})
# qkvo: m.W_query, m.W_key, m.W_value, m.out_proj
import torch
import torch.nn as nn

SMALL_CONFIG = {
    "emb_dim": 24,
    "n_heads": 4,
    "context_length": 16,
    "drop_rate": 0.1,
    "qkv_bias": False,
}


class FeedForward(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        width = cfg["emb_dim"]
        self.layers = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        return self.layers(x)


class MultiHeadAttention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        width, self.n_heads = cfg["emb_dim"], cfg["n_heads"]
        assert width % self.n_heads == 0
        self.head_dim = width // self.n_heads
        self.W_query = nn.Linear(width, width, bias=cfg["qkv_bias"])
        self.W_key = nn.Linear(width, width, bias=cfg["qkv_bias"])
        self.W_value = nn.Linear(width, width, bias=cfg["qkv_bias"])
        self.out_proj = nn.Linear(width, width)
        self.dropout = nn.Dropout(cfg["drop_rate"])
        n = cfg["context_length"]
        self.register_buffer("mask", torch.triu(torch.ones(n, n), diagonal=1).bool())

    def forward(self, x):
        batch, tokens, width = x.shape
        split = (batch, tokens, self.n_heads, self.head_dim)
        queries = self.W_query(x).view(split).transpose(1, 2)
        keys = self.W_key(x).view(split).transpose(1, 2)
        values = self.W_value(x).view(split).transpose(1, 2)
        scores = queries @ keys.transpose(2, 3)
        masked = scores.masked_fill(self.mask[:tokens, :tokens], -torch.inf)
        weights = torch.softmax(masked / self.head_dim**0.5, dim=-1)
        weights = self.dropout(weights)
        context = (weights @ values).transpose(1, 2)
        return self.out_proj(context.reshape(batch, tokens, width))


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.att = MultiHeadAttention(cfg)
        self.ff = FeedForward(cfg)
        self.norm1 = nn.LayerNorm(cfg["emb_dim"])
        self.norm2 = nn.LayerNorm(cfg["emb_dim"])

    def forward(self, x):
        x = x + self.att(self.norm1(x))
        return x + self.ff(self.norm2(x))
