# good: as short as it gets: one expression a step, softmax by a method, mask by triu of -inf
# build: Attn(d_model=d_out, nhead=num_heads)
# qkvo: m.q, m.k, m.v, m.o
import torch as th


class Attn(th.nn.Module):
    def __init__(self, d_model: int, nhead: int):
        super().__init__()
        if d_model % nhead:
            raise ValueError("nhead must divide d_model")
        self.h = nhead
        for name in "qkvo":
            setattr(self, name, th.nn.Linear(d_model, d_model))

    def forward(self, x):
        q, k, v = (getattr(self, n)(x).unflatten(-1, (self.h, -1)).transpose(1, 2) for n in "qkv")
        inf = th.full((x.shape[1],) * 2, -th.inf, dtype=x.dtype, device=x.device)
        p = (q @ k.mT / k.shape[-1] ** 0.5 + inf.triu(1)).softmax(-1)
        return self.o((p @ v).transpose(1, 2).flatten(2))
