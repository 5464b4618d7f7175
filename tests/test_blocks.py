# ruff: noqa: E501 - lines of a reader's own file
"""Blocks and models around attention: what the debugger says of their sums and norms.

What a block ought to be is a formula here, in plain torch over its own layers: a right
block equals it, a faulty one does not, before the debugger is asked.
"""

import textwrap

import pytest
from cases import line_of
from examined import examined

from steps.pytorch import nn, torch

pytestmark = pytest.mark.usefixtures("one_thread")

ATTENTION = """
import torch
import torch.nn.functional as F
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.proj = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        b, t, d = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (z.view(b, t, self.n_heads, -1).transpose(1, 2) for z in (q, k, v))
        scores = q @ k.transpose(-2, -1) / (d // self.n_heads) ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask == 0, float("-inf"))
        out = scores.softmax(-1) @ v
        return self.proj(out.transpose(1, 2).reshape(b, t, d))
"""
PAIR = ATTENTION.replace(
    "out = scores.softmax(-1) @ v",
    "weights = scores.softmax(-1)\n        out = weights @ v",
).replace("reshape(b, t, d))", "reshape(b, t, d)), weights")
CAUSAL = ATTENTION.replace("x, mask=None", "x").replace(
    "        if mask is not None:\n            scores = scores.masked_fill(mask == 0,",
    "        scores = scores.masked_fill(torch.ones(t, t, device=x.device).triu(1) == 1,",
)
BLOCK = """

class Block(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.attn = SelfAttention(d_model, n_heads)
        self.ff = nn.Sequential(nn.Linear(d_model, 64), nn.GELU(), nn.Linear(64, d_model))
        self.gain = nn.Parameter(torch.ones(d_model))
        self.first = FIRST

    def forward(self, x):
"""


def block(body, attention=ATTENTION, takes="x", first=True):
    head = BLOCK.replace("forward(self, x)", f"forward(self, {takes})")
    source = attention + head.replace("FIRST", str(first))
    return source + textwrap.indent(textwrap.dedent(body).strip(), " " * 8) + "\n"


def made(source, name="Block", *sizes):
    """The module of a source and an input, both float64."""
    torch.manual_seed(0)
    names = {}
    exec(compile(source, "block", "exec"), names)
    module = names[name](*(sizes or (40, 4))).double().eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    return module, torch.randn(2, 7, 40, dtype=torch.float64)


def pre(b, x):
    y = x + b.attn(b.norm1(x))
    return y + b.ff(b.norm2(y))


def post(b, x):
    y = b.norm1(x + b.attn(x))
    return b.norm2(y + b.ff(y))


def parallel(b, x):
    h = b.norm1(x)
    return x + b.attn(h) + b.ff(h)


def after_each(b, x):
    y = x + b.norm1(b.attn(x))
    return y + b.norm2(b.ff(y))


def bare(b, x):
    y = x + b.attn(x)
    return y + b.ff(y)


def layer_scale(b, x):
    y = x + b.gain * b.attn(b.norm1(x))
    return y + b.gain * b.ff(b.norm2(y))


def half_steps(b, x):
    y = x + 0.5 * b.ff(b.norm1(x))
    return y + b.attn(b.norm2(y))


def from_the_norm(b, x):
    h = b.norm1(x)
    y = h + b.attn(h)
    h = b.norm2(y)
    return h + b.ff(h)


RIGHT = {
    "pre": ("x = x + self.attn(self.norm1(x))\nreturn x + self.ff(self.norm2(x))", pre),
    "in place": ("x += self.attn(self.norm1(x))\nx += self.ff(self.norm2(x))\nreturn x", pre),
    "one name": ("r = x\nx = self.attn(self.norm1(x))\nx = r + x\nr = x\nx = self.ff(self.norm2(x))\nreturn r + x", pre),
    "post": ("x = self.norm1(x + self.attn(x))\nreturn self.norm2(x + self.ff(x))", post),
    "parallel": ("h = self.norm1(x)\nreturn x + self.attn(h) + self.ff(h)", parallel),
    "norm of the result": ("x = x + self.norm1(self.attn(x))\nreturn x + self.norm2(self.ff(x))", after_each),
    "no norm": ("x = x + self.attn(x)\nreturn x + self.ff(x)", bare),
    "gains": ("x = x + self.gain * self.attn(self.norm1(x))\nreturn x + self.gain * self.ff(self.norm2(x))", layer_scale),
    "half steps": ("x = x + 0.5 * self.ff(self.norm1(x))\nreturn x + self.attn(self.norm2(x))", half_steps),
    "residual after the norm": ("x = self.norm1(x)\nx = x + self.attn(x)\nx = self.norm2(x)\nreturn x + self.ff(x)", from_the_norm),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_a_form_that_is_known_has_no_fault(name):
    body, formula = RIGHT[name]
    source = block(body)
    module, x = made(source)
    assert torch.allclose(module(x.clone()), formula(module, x))
    answer = examined(source)
    assert answer["verdict"] == "no fault", answer["message"]
    assert any(said.startswith("Block") for said in answer["tried"])


WRONG = {
    "attention replaces x": ("x = self.attn(self.norm1(x))\nreturn x + self.ff(self.norm2(x))", pre, "x = self.attn"),
    "renamed": ("a = self.attn(self.norm1(x))\nx = a\nreturn x + self.ff(self.norm2(x))", pre, "x = a"),
    "replaces, post": ("x = self.norm1(self.attn(x))\nreturn self.norm2(x + self.ff(x))", post, "x = self.norm1"),
    "feed-forward replaces x": ("x = x + self.attn(self.norm1(x))\nreturn self.ff(self.norm2(x))", pre, "return"),
    "norm added": ("h = self.norm1(x)\nx = h + self.attn(h)\nreturn x + self.ff(self.norm2(x))", pre, "x = h"),
    "norm added to feed-forward": ("x = x + self.attn(self.norm1(x))\nx = self.norm2(x)\nreturn x + self.ff(x)", pre, "return"),
    "twice": ("h = x + self.attn(self.norm1(x))\nx = x + h\nreturn x + self.ff(self.norm2(x))", pre, "x = x + h"),
    "older x": ("y = x + self.attn(self.norm1(x))\nreturn x + self.ff(self.norm2(y))", pre, "return"),
    "older x, post": ("y = self.norm1(x + self.attn(x))\nreturn self.norm2(x + self.ff(y))", post, "return"),
    "one norm for two": ("x = x + self.attn(self.norm1(x))\nreturn x + self.ff(self.norm1(x))", pre, "return"),
    "norm left out": ("x = x + self.attn(self.norm1(x))\nreturn x + self.ff(x)", pre, "return"),
    "last norm left out": ("x = self.norm1(x + self.attn(x))\nreturn x + self.ff(x)", post, "return"),
    "norm not used": ("h = self.norm1(x)\nx = x + self.attn(x)\nreturn x + self.ff(self.norm2(x))", pre, "x = x +"),
    "norm before and after": ("x = x + self.attn(self.norm1(x))\nreturn self.norm2(x + self.ff(x))", pre, "return"),
    "feed-forward of attention": ("a = self.attn(self.norm1(x))\nx = x + a\nreturn x + self.ff(self.norm2(a))", pre, "return"),
    "attention lost": ("a = self.attn(self.norm1(x))\nreturn x + self.ff(self.norm2(x))", pre, "a ="),
    "one sequence's": ("x = x + self.attn(self.norm1(x))[0]\nreturn x + self.ff(self.norm2(x))", pre, "x = x"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_sum_or_norm_is_found_at_its_line(name):
    body, formula, line = WRONG[name]
    source = block(body)
    module, x = made(source)
    assert not torch.allclose(module(x.clone()), formula(module, x))
    answer = examined(source, quick=True)
    assert answer["verdict"] == "fault"
    start = source.index("class Block")
    assert answer["line"] == source[:start].count("\n") + line_of(
        source[start:], "        " + line
    )
    assert answer["statement"].startswith(line)


def test_a_pair_that_is_not_unpacked():
    right = block("a, _ = self.attn(self.norm1(x))\nreturn x + a", PAIR)
    made(right)[0](made(right)[1])
    assert examined(right)["verdict"] == "no fault"
    source = right.replace("a, _ =", "a =")
    module, x = made(source)
    with pytest.raises(TypeError):
        module(x)
    answer = examined(source)
    assert answer["verdict"] == "fault"
    assert answer["line"] == line_of(source, "        a = self.attn(self.norm1(x))")


def test_a_mask_that_is_not_passed_on():
    body = "x = x + self.attn(self.norm1(x), mask)\nreturn x + self.ff(self.norm2(x))"
    right = block(body, takes="x, mask=None")
    wrong = right.replace("self.norm1(x), mask)", "self.norm1(x))")
    mask = torch.ones(7, 7).tril()
    for source, verdict in ((right, "no fault"), (wrong, "fault")):
        module, x = made(source)
        other = x.clone()
        other[:, -1] *= 2
        causal = torch.equal(module(x, mask)[:, :-1], module(other, mask)[:, :-1])
        assert causal == (verdict == "no fault")
        answer = examined(source)
        assert answer["verdict"] == verdict, answer["message"]
    assert answer["statement"] == "x = x + self.attn(self.norm1(x))"


def test_a_switch_that_makes_another_form_is_no_fault():
    body = "h = self.norm1(x)\nx = (x if self.first else h) + self.attn(h)\nreturn x + self.ff(self.norm2(x))"
    assert examined(block(body, first=True))["verdict"] == "no fault"
    answer = examined(block(body, first=False))
    assert answer["verdict"] == "no fault"
    assert any("Block" in said for said in answer["not_tried"])


MODEL = """

class Model(nn.Module):
    def __init__(self, vocab_size, context_length, d_model, n_heads, n_layers):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(context_length, d_model)
        self.blocks = nn.ModuleList(Block(d_model, n_heads) for _ in range(n_layers))
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, vocab_size)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("            x = block(x)", "            y = block(x)"),
        ("self.norm(x)", "self.norm(x + x.mean(1, keepdim=True))"),
        ("self.norm(x)", "self.norm_f(x)"),
    ],
)
def test_a_model_of_tokens(old, new):
    right = block(RIGHT["pre"][0], CAUSAL) + MODEL
    module, _ = made(right, "Model", 17, 9, 40, 4, 2)
    ids = torch.arange(7)[None]
    other = ids.clone()
    other[0, -1] = 11
    assert torch.equal(module(ids)[:, :-1], module(other)[:, :-1])
    answer = examined(right)
    assert answer["verdict"] == "no fault"
    assert any(said.startswith("Model") for said in answer["tried"])
    source = right.replace(old, new)
    answer = examined(source)
    assert answer["verdict"] == "fault"
    assert new.strip() in answer["statement"]


def test_a_block_of_an_attention_layer_of_torch():
    attention = ATTENTION.split("class")[0]
    right = block(
        "a, _ = self.attn(x, x, x)\nx = self.norm1(x + a)\nreturn self.norm2(x + self.ff(x))",
        attention,
    )
    right = right.replace(
        "SelfAttention(d_model, n_heads)",
        "nn.MultiheadAttention(d_model, n_heads, batch_first=True)",
    )
    assert examined(right)["verdict"] == "no fault"
    source = right.replace("self.norm1(x + a)", "self.norm1(a)")
    answer = examined(source)
    assert answer["verdict"] == "fault"
