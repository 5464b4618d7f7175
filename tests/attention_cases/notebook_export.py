# good: top-level demo code that seeds and prints, a forward that prints its shapes
# build: MultiHeadSelfAttention(d_in, d_out, context_length, num_heads, dropout)
# qkvo: m.queries, m.keys, m.values, m.projection
# %%
import torch
import torch.nn as nn

torch.manual_seed(123)

# %%
inputs = torch.rand(6, 3)
toy_scores = inputs @ inputs.T
print("toy scores", toy_scores.shape)


# %%
class MultiHeadSelfAttention(nn.Module):
    def __init__(self, d_in, d_out, max_length, num_heads, dropout):
        super().__init__()
        assert d_out % num_heads == 0, "d_out must be divisible by num_heads"
        self.num_heads = num_heads
        self.d_head = d_out // num_heads
        self.queries = nn.Linear(d_in, d_out, bias=False)
        self.keys = nn.Linear(d_in, d_out, bias=False)
        self.values = nn.Linear(d_in, d_out, bias=False)
        self.projection = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", torch.triu(torch.ones(max_length, max_length), diagonal=1))

    def forward(self, x):
        batch, length, _ = x.shape
        print("x", tuple(x.shape))
        q = self.queries(x).view(batch, length, self.num_heads, self.d_head)
        k = self.keys(x).view(batch, length, self.num_heads, self.d_head)
        v = self.values(x).view(batch, length, self.num_heads, self.d_head)
        q = torch.transpose(q, 1, 2)
        k = torch.transpose(k, 1, 2)
        v = torch.transpose(v, 1, 2)
        print("q", tuple(q.shape))
        scores = torch.matmul(q, torch.transpose(k, 2, 3))
        future = self.mask[:length, :length].bool()
        scores.masked_fill_(future, float("-inf"))
        scores = scores / self.d_head**0.5
        weights = torch.softmax(scores, dim=-1)
        weights = self.dropout(weights)
        context = torch.matmul(weights, v)
        context = torch.transpose(context, 1, 2)
        context = context.reshape(batch, length, self.num_heads * self.d_head)
        print("context", tuple(context.shape))
        return self.projection(context)


# %%
attention = MultiHeadSelfAttention(3, 4, 6, 2, 0.0)
print(attention(inputs.unsqueeze(0)))
