# ruff: noqa: E501 - a slip and its style on a row each
"""Styles and slips beyond the article's: shared keys, one weight in slices, padding.

Each right module is held against scaled_dot_product_attention over its own weights; each
slip is one line of it, and changes what it gives unless it says where it shows instead.
"""

import types

import pytest

from steps.debugger.examine import examine_file
from steps.pytorch import nn, torch

attention = nn.functional.scaled_dot_product_attention

HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn

"""

GROUPED = """
def repeat_kv(x, times):
    return x.repeat_interleave(times, dim=1)

class Grouped(nn.Module):
    def __init__(self, dim, n_heads, n_kv_heads):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.hd = n_heads, n_kv_heads, dim // n_heads
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wk = nn.Linear(dim, n_kv_heads * self.hd, bias=False)
        self.wv = nn.Linear(dim, n_kv_heads * self.hd, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        q = self.wq(x).view(b, t, self.n_heads, self.hd).transpose(1, 2)
        k = self.wk(x).view(b, t, self.n_kv_heads, self.hd).transpose(1, 2)
        v = self.wv(x).view(b, t, self.n_kv_heads, self.hd).transpose(1, 2)
        times = self.n_heads // self.n_kv_heads
        k, v = repeat_kv(k, times), repeat_kv(v, times)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(out.transpose(1, 2).reshape(b, t, -1))
"""
SHARED = """
class Shared(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads, self.hd = n_heads, d_model // n_heads
        self.wqkv = nn.Linear(d_model, d_model + 2 * self.hd)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = self.wqkv(x).split([d, self.hd, self.hd], dim=2)
        q = q.reshape(b, s * self.n_heads, self.hd)
        scores = torch.bmm(q, k.transpose(1, 2)) / self.hd**0.5
        scores = scores.view(b, s, self.n_heads, s)
        hidden = torch.ones(s, s, dtype=torch.bool, device=x.device).triu(1)
        scores = scores.masked_fill(hidden[None, :, None, :], float("-inf"))
        weights = scores.softmax(-1).view(b, s * self.n_heads, s)
        return self.out(torch.bmm(weights, v).view(b, s, d))
"""
SLICES = """
class Slices(nn.Module):
    def __init__(self, embed_dim, heads):
        super().__init__()
        self.embed_dim, self.heads = embed_dim, heads
        self.in_proj = nn.Parameter(torch.randn(3 * embed_dim, embed_dim) / 6)
        self.out = nn.Linear(embed_dim, embed_dim)

    def project(self, x, part):
        rows = slice(part * self.embed_dim, (part + 1) * self.embed_dim)
        b, t, _ = x.shape
        made = F.linear(x, self.in_proj[rows]).view(b, t, self.heads, -1)
        return made.transpose(1, 2)

    def forward(self, x):
        q = self.project(x, 0)
        k = self.project(x, 1)
        v = self.project(x, 2)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        weights = torch.softmax(scores, dim=-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))
"""
SUMMED = """
class Summed(nn.Module):
    def __init__(self, n_heads, d_model, d_head):
        super().__init__()
        sizes = [(n_heads, d_model, d_head)] * 3
        self.wq, self.wk, self.wv = (nn.Parameter(torch.randn(s) / 4) for s in sizes)
        self.wo = nn.ParameterList(torch.randn(d_head, d_model) / 4 for _ in range(n_heads))
        self.bias = nn.Parameter(torch.randn(d_model))

    def forward(self, x):
        total = self.bias
        for h, wo in enumerate(self.wo):
            scores = (x @ self.wq[h]) @ (x @ self.wk[h]).mT
            weights = torch.softmax(scores / self.wq.shape[-1] ** 0.5, dim=-1)
            total = total + weights @ (x @ self.wv[h]) @ wo
        return total
"""
FOLDED = """
class Folded(nn.Module):
    def __init__(self, n_state, n_head):
        super().__init__()
        self.n_head = n_head
        self.query = nn.Linear(n_state, n_state)
        self.key = nn.Linear(n_state, n_state)
        self.value = nn.Linear(n_state, n_state)
        self.out = nn.Linear(n_state, n_state)

    def forward(self, x):
        b, t, width = x.shape
        scale = (width // self.n_head) ** -0.5
        w = torch.cat([self.query.weight * scale, self.key.weight, self.value.weight])
        bias = torch.cat([self.query.bias * scale, self.key.bias, self.value.bias])
        q, k, v = F.linear(x, w, bias).view(b, t, 3, self.n_head, -1).unbind(2)
        scores = q.transpose(1, 2) @ k.permute(0, 2, 3, 1)
        return self.out((scores.softmax(-1) @ v.transpose(1, 2)).transpose(1, 2).flatten(2))
"""
STREAMED = """
class Streamed(nn.Module):
    def __init__(self, dim, num_heads, block=2):
        super().__init__()
        self.num_heads, self.block = num_heads, block
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        q = q / q.shape[-1] ** 0.5
        top = q.new_full((*q.shape[:-1], 1), -float("inf"))
        total, made = torch.zeros_like(top), torch.zeros_like(q)
        for k_part, v_part in zip(k.split(self.block, 2), v.split(self.block, 2)):
            scores = q @ k_part.mT
            new = torch.maximum(top, scores.amax(-1, keepdim=True))
            raised, fix = torch.exp(scores - new), torch.exp(top - new)
            total = total * fix + raised.sum(-1, keepdim=True)
            made, top = made * fix + raised @ v_part, new
        return self.out((made / total).transpose(1, 2).reshape(b, n, c))
"""
PLACED = """
class Placed(nn.Module):
    def __init__(self, num_features, num_heads, max_seq):
        super().__init__()
        self.num_heads = num_heads
        self.pos = nn.Parameter(torch.randn(max_seq, num_features))
        self.qkv = nn.Linear(num_features, 3 * num_features)
        self.out = nn.Linear(num_features, num_features)

    def forward(self, x):
        x = x + self.pos[: x.shape[1]]
        parts = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for t in parts)
        weights = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))
"""
PADDED = """
class Padded(nn.Module):
    def __init__(self, hidden_size, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.value = nn.Linear(hidden_size, hidden_size)
        self.out = nn.Linear(hidden_size, hidden_size)

    def split(self, x):
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def forward(self, x, attention_mask=None):
        q = self.split(self.query(x))
        k = self.split(self.key(x))
        v = self.split(self.value(x))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if attention_mask is not None:
            seen = attention_mask[:, None, None, :].bool()
            scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
        weights = torch.softmax(scores, dim=-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))
"""
LECTURE = """
def causal_mask(size):
    ones = torch.ones(size, size)
    return torch.triu(ones, diagonal=1).bool()

class Lecture(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads):
        super().__init__()
        self.num_heads, self.hd = num_heads, d_out // num_heads
        self.W_query = nn.Linear(d_in, d_out)
        self.W_key = nn.Linear(d_in, d_out)
        self.W_value = nn.Linear(d_in, d_out)
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", causal_mask(context_length))

    def one_head(self, q, k, v):
        n = q.shape[1]
        scores = q @ k.mT / self.hd**0.5
        scores = scores.masked_fill(self.mask[:n, :n], -torch.inf)
        weights = torch.softmax(scores, dim=-1)
        weights = self.dropout(weights)
        return weights @ v

    def forward(self, x):
        q, k, v = self.W_query(x), self.W_key(x), self.W_value(x)
        contexts = []
        for h in range(self.num_heads):
            part = slice(h * self.hd, (h + 1) * self.hd)
            contexts.append(self.one_head(q[..., part], k[..., part], v[..., part]))
        joined = torch.cat(contexts, dim=-1)
        return self.out_proj(joined)
"""


def split(x, weight, bias, heads):
    """(B, T, width) -> (B, H, T, D), by a weight."""
    made = nn.functional.linear(x, weight, bias)
    return made.unflatten(-1, (heads, -1)).transpose(1, 2)


def joined(q, k, v, causal=False):
    groups = q.shape[1] // k.shape[1]
    k, v = (t.repeat_interleave(groups, 1) for t in (k, v))
    return attention(q, k, v, is_causal=causal).transpose(1, 2).flatten(2)


def of_layers(layers, x, heads, causal=False):
    """Plain attention by three (weight, bias), of fewer heads for keys where narrower."""
    width = layers[0][0].shape[0] // heads
    q, k, v = (split(x, w, b, w.shape[0] // width) for w, b in layers)
    return joined(q, k, v, causal)


def both(layer):
    return layer.weight, layer.bias


def cut(layer, *sizes):
    return list(zip(layer.weight.split(sizes), layer.bias.split(sizes), strict=True))


def summed(m, x):
    return m.bias + sum(
        attention(x @ m.wq[h], x @ m.wk[h], x @ m.wv[h]) @ wo
        for h, wo in enumerate(m.wo)
    )


# name: (source, what makes it, what it is to give)
RIGHT = {
    "grouped": (
        GROUPED,
        "Grouped(24, 4, 2)",
        lambda m, x: m.wo(
            of_layers([both(m.wq), both(m.wk), both(m.wv)], x, 4, causal=True)
        ),
    ),
    "shared": (
        SHARED,
        "Shared(24, 4)",
        lambda m, x: m.out(of_layers(cut(m.wqkv, 24, 6, 6), x, 4, causal=True)),
    ),
    "slices": (
        SLICES,
        "Slices(24, 4)",
        lambda m, x: m.out(
            of_layers([(w, None) for w in m.in_proj.chunk(3)], x, 4),
        ),
    ),
    "summed": (SUMMED, "Summed(4, 24, 6)", summed),
    "folded": (
        FOLDED,
        "Folded(24, 4)",
        lambda m, x: m.out(
            of_layers([both(m.query), both(m.key), both(m.value)], x, 4)
        ),
    ),
    "streamed": (
        STREAMED,
        "Streamed(24, 4)",
        lambda m, x: m.out(of_layers(cut(m.qkv, 24, 24, 24), x, 4)),
    ),
    "placed": (
        PLACED,
        "Placed(24, 4, 9)",
        lambda m, x: m.out(of_layers(cut(m.qkv, 24, 24, 24), x + m.pos[:5], 4)),
    ),
    "padded": (
        PADDED,
        "Padded(24, 4)",
        lambda m, x: m.out(
            of_layers([both(m.query), both(m.key), both(m.value)], x, 4)
        ),
    ),
    "lecture": (
        LECTURE,
        "Lecture(24, 24, 9, 0.1, 4)",
        lambda m, x: m.out_proj(
            of_layers([both(m.W_query), both(m.W_key), both(m.W_value)], x, 4, True)
        ),
    ),
}
# style, the right code, the wrong code, the line to be named (a part of it)
WRONG = [
    (
        "grouped",
        "x.repeat_interleave(times, dim=1)",
        "x.repeat(1, times, 1, 1)",
        "x.repeat(",
    ),
    ("slices", "v = self.project(x, 2)", "v = self.project(x, 1)", "v = self"),
    ("summed", "self.wv[h]", "self.wv[0]", "self.wv[0]"),
    ("folded", ") ** -0.5", ") ** -0.25", "scores = "),
    ("lecture", "diagonal=1", "diagonal=0", "diagonal=0"),
    ("lecture", "part = slice(h * self.hd, (h + 1) * self.hd)", "part = slice(self.hd)",
     "self.one_head(q"),
    ("lecture", "self.dropout(weights)\n        return weights @ v",
     "self.dropout(weights)\n        return self.out_proj(weights @ v)", "self.out_proj(weights"),
    ("padded", "transpose(1, 2)\n\n", "transpose(2, 3)\n\n", "transpose(2, 3)"),
    ("padded", "v = self.split(self.value(x))", "v = self.split(self.key(x))", "v = "),
]  # fmt: skip
# The same, for what no run in eval mode without a mask shows.
ELSEWHERE = [
    ("padded", "[:, None, None, :]", "[:, None, :, None]", "[:, None, :, None]"),
    ("padded", "scores = scores.masked_fill", "scores.masked_fill", "scores.masked"),
    ("padded", "weights = torch.softmax(scores, dim=-1)",
     "weights = torch.softmax(scores, dim=-1).detach()", ".detach()"),
    ("slices", "        weights = torch.softmax(scores, dim=-1)",
     "        with torch.no_grad():\n            weights = scores.softmax(-1)", "no_grad"),
    ("lecture", "self.dropout(weights)", "self.dropout(self.dropout(weights))",
     "self.dropout(self"),
    ("lecture", "weights = self.dropout(weights)", "weights = weights",
     "self.dropout = "),
    ("lecture", "        q, k, v = self.W", "        x = self.dropout(x)\n        q, k, v = self.W",
     "x = self.dropout(x)"),
]  # fmt: skip


def made(source, expression):
    scope = types.ModuleType("style")
    exec(compile(HEAD + source, "style", "exec"), scope.__dict__)
    torch.manual_seed(1)
    return eval(expression, vars(scope)).double().eval()


def given():
    generator = torch.Generator().manual_seed(2)
    return torch.randn(2, 5, 24, generator=generator, dtype=torch.float64)


def examined(source, tmp_path):
    file = tmp_path / "style.py"
    file.write_text(HEAD + source)
    return examine_file(str(file))


@pytest.mark.parametrize("style", RIGHT)
def test_a_right_style_has_no_fault(style, tmp_path):
    source, expression, expected = RIGHT[style]
    module, x = made(source, expression), given()
    with torch.no_grad():
        assert torch.allclose(module(x), expected(module, x), atol=1e-9)
    found = examined(source, tmp_path)
    assert found.verdict == "no fault", str(found)


def outcome(source, expression):
    with torch.no_grad():
        try:
            return made(source, expression)(given())
        except RuntimeError:
            return None


@pytest.mark.parametrize(("style", "right", "wrong", "named"), [*WRONG, *ELSEWHERE])
def test_the_line_of_a_slip_is_named(style, right, wrong, named, tmp_path):
    source, expression, _ = RIGHT[style]
    assert right in source
    slipped = source.replace(right, wrong, 1)
    one, two = outcome(source, expression), outcome(slipped, expression)
    same = two is not None and one.shape == two.shape and torch.allclose(one, two)
    assert same == ((style, right, wrong, named) in ELSEWHERE)
    found = examined(slipped, tmp_path)
    assert found.verdict == "fault", str(found)
    lines = (HEAD + slipped).splitlines()
    assert named in lines[found.line - 1], str(found)
