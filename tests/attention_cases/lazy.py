# good: lazy layers, three inputs and the lengths, the weights kept on the module
# build: MultiHeadAttention(d_out, num_heads)
# call: m(x, x, x, None)
# qkvo: m.W_q, m.W_k, m.W_v, m.W_o
# sees: all
# skip: registered meta half large
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, num_hiddens, num_heads):
        super().__init__()
        assert num_hiddens % num_heads == 0
        self.num_heads = num_heads
        self.W_q, self.W_k = nn.LazyLinear(num_hiddens), nn.LazyLinear(num_hiddens)
        self.W_v, self.W_o = nn.LazyLinear(num_hiddens), nn.LazyLinear(num_hiddens)

    def forward(self, queries, keys, values, valid_lens):
        q, k, v = self.W_q(queries), self.W_k(keys), self.W_v(values)
        q, k, v = (t.unflatten(-1, (self.num_heads, -1)).mT.mT for t in (q, k, v))
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        self.kept = (q @ k.mT / k.shape[-1] ** 0.5).softmax(-1)
        return self.W_o((self.kept @ v).transpose(1, 2).flatten(2))
