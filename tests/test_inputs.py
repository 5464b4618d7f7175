# ruff: noqa: E501 - lines of a reader's own file
"""Inputs that are not (B, T, C), results that are not one tensor, weights that are made.

Each right module is compared with scaled_dot_product_attention over its own weights,
in plain torch, before the debugger is asked; each fault has to differ from it.
"""

import pytest
from cases import line_of
from examined import examined

from steps.debugger import diagnose
from steps.pytorch import nn, torch

pytestmark = pytest.mark.usefixtures("one_thread")
F = nn.functional


def attention(q, k, v, H, causal=False):
    """(B, T, H * D) each, heads first among the features, to the joined contexts."""
    q, k, v = (z.unflatten(-1, (H, -1)).transpose(1, 2) for z in (q, k, v))
    return (
        F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        .transpose(1, 2)
        .flatten(2)
    )


HEAD = "import math\nimport torch\nfrom torch import nn\nF = nn.functional\n\n\n"
IMAGE = (
    HEAD
    + """class ImageAttention(nn.Module):
    def __init__(self, channels, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Conv2d(channels, 3 * channels, 1)
        self.proj = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        heads = (b, self.num_heads, c // self.num_heads, h * w)
        q, k, v = (z.reshape(heads) for z in self.qkv(x).chunk(3, dim=1))
        weights = (q.transpose(2, 3) @ k / (c // self.num_heads) ** 0.5).softmax(-1)
        out = v @ weights.transpose(2, 3)
        return x + self.proj(out.reshape(b, c, h, w))
"""
)
LAST = (
    HEAD
    + """class RowsAndColumns(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, h, w, c = x.shape
        qkv = self.qkv(x).reshape(b, h * w, 3, self.num_heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.proj(y.transpose(1, 2).reshape(b, h, w, c))
"""
)
FRAMES = (
    HEAD
    + """class FrameAttention(nn.Module):
    def __init__(self, channels, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.q = nn.Conv1d(channels, channels, 1)
        self.k = nn.Conv1d(channels, channels, 1)
        self.v = nn.Conv1d(channels, channels, 1)
        self.o = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        b, c, t = x.shape
        q, k, v = (f(x).view(b, self.n_heads, -1, t).transpose(2, 3) for f in (self.q, self.k, self.v))
        weights = (q @ k.mT / math.sqrt(c // self.n_heads)).softmax(dim=-1)
        return self.o((weights @ v).transpose(2, 3).reshape(x.shape))
"""
)
HANDED = (
    HEAD
    + """class PackedAttention(nn.Module):
    def forward(self, qkv):
        q, k, v = qkv.unbind(dim=2)
        scores = torch.einsum("bthd,bshd->bhts", q, k) / q.shape[-1] ** 0.5
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        weights = scores.masked_fill(future, float("-inf")).softmax(dim=-1)
        return torch.einsum("bhts,bshd->bthd", weights, v)
"""
)
HANDED_FIRST = (
    HEAD
    + """class PackedAttention(nn.Module):
    def __init__(self, n_heads):
        super().__init__()
        self.n_heads = n_heads

    def forward(self, qkv):
        b, width, t = qkv.shape
        d = width // (3 * self.n_heads)
        q, k, v = qkv.reshape(b * self.n_heads, 3 * d, t).split(d, dim=1)
        weights = torch.einsum("bct,bcs->bts", q, k / d**0.5).softmax(-1)
        return torch.einsum("bts,bcs->bct", weights, v).reshape(b, -1, t)
"""
)


def weights_of(module, names):
    return [
        (getattr(module, n).weight.flatten(1), getattr(module, n).bias) for n in names
    ]


def image(module, x):
    (w, b), (u, c) = weights_of(module, ("qkv", "proj"))
    tokens = x.flatten(2).mT
    y = attention(*F.linear(tokens, w, b).chunk(3, -1), module.num_heads)
    return x + F.linear(y, u, c).mT.view(x.shape)


def last(module, x):
    tokens = x.flatten(1, 2)
    y = attention(*module.qkv(tokens).chunk(3, -1), module.num_heads)
    return module.proj(y).view(x.shape)


def frames(module, x):
    rows = weights_of(module, "qkvo")
    y = attention(*(F.linear(x.mT, w, b) for w, b in rows[:3]), module.n_heads)
    return F.linear(y, *rows[3]).mT


def handed(module, x):
    return attention(*(z.flatten(2) for z in x.unbind(2)), x.shape[3], True).view(
        x[:, :, 0].shape
    )


def handed_first(module, x):
    q, k, v = x.mT.unflatten(-1, (module.n_heads, 3, -1)).unbind(3)
    return attention(*(z.flatten(2) for z in (q, k, v)), module.n_heads).mT


FORMS = {
    "image": (IMAGE, (24, 3), (2, 24, 3, 5), image, "weights.transpose(2, 3)", "weights"),
    "channels last": (LAST, (24, 3), (2, 3, 5, 24), last, "y.transpose(1, 2).reshape(b, h, w, c)", "y.reshape(b, h, w, c)"),
    "channels first": (FRAMES, (24, 3), (2, 24, 7), frames, ".transpose(2, 3).reshape(x.shape)", ".reshape(x.shape)"),
    "handed over": (HANDED, (), (2, 7, 3, 4, 10), handed, "weights, v)", "weights.mT, v)"),
    "handed over, channels first": (HANDED_FIRST, (4,), (2, 120, 7), handed_first, "d**0.5", "d**0.25"),
}  # fmt: skip


def made(source, *sizes):
    torch.manual_seed(0)
    names = {}
    exec(compile(source, "module", "exec"), names)
    cls = next(
        v for v in names.values() if isinstance(v, type) and v.__module__ == "builtins"
    )
    return cls(*sizes).double().eval()


@pytest.mark.parametrize("name", FORMS)
def test_another_form_of_input(name):
    right, sizes, shape, formula, old, new = FORMS[name]
    wrong = right.replace(old, new)
    x = torch.randn(shape, dtype=torch.float64)
    module = made(right, *sizes)
    assert torch.allclose(module(x), formula(module, x))
    assert not torch.allclose(made(wrong, *sizes)(x), formula(module, x))
    answer = examined(right)
    assert answer["verdict"] == "no fault", answer["report"]
    assert "equals" in answer["proof"]
    answer = examined(wrong)
    assert answer["verdict"] == "fault", answer["report"]
    assert answer["line"] == line_of(
        wrong, next(t for t in wrong.splitlines() if t not in right.splitlines())
    )


PLAIN = (
    HEAD
    + """class SelfAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        weights = (q @ k.mT / math.sqrt(d // self.n_heads)).softmax(dim=-1)
        out = self.proj((weights @ v).transpose(1, 2).reshape(b, t, d))
        return out
"""
)


def changed(*pairs, source=PLAIN):
    for old, new in pairs:
        assert old in source
        source = source.replace(old, new)
    return source


CLASS = "class SelfAttention"
RESULT = "        return out\n"
RETURNED = {
    "dataclass": changed((CLASS, "from dataclasses import dataclass\n\n\n@dataclass\nclass Made:\n    out: torch.Tensor\n    weights: torch.Tensor\n\n\n" + CLASS), ("return out", "return Made(out, weights)")),
    "dict": changed(("return out", 'return {"weights": weights, "out": out}')),
    "named tuple": changed((CLASS, "from collections import namedtuple\nMade = namedtuple('Made', 'weights out')\n\n\n" + CLASS), ("return out", "return Made(weights, out)")),
    "generator": changed(("return out", "return (value for value in (out, weights))")),
    "namespace": changed((HEAD, "from types import SimpleNamespace\n" + HEAD), ("return out", "return SimpleNamespace(out=out)")),
}  # fmt: skip


@pytest.mark.parametrize("name", RETURNED)
def test_the_output_inside_something_else(name):
    assert examined(RETURNED[name])["verdict"] == "no fault"


def test_weights_alone_are_no_output():
    answer = examined(changed(("return out", "return {'weights': weights}")))
    assert answer["verdict"] == "fault"


@pytest.mark.parametrize("how", ["weight_norm", "spectral_norm", "orthogonal"])
def test_weights_that_are_computed(how):
    made_so = f"nn.utils.parametrizations.{how}(nn.Linear(d_model, d_model))"
    right = changed(
        ("self.proj = nn.Linear(d_model, d_model)", f"self.proj = {made_so}")
    )
    assert examined(right)["verdict"] == "no fault"
    wrong = changed(("k.mT / math.sqrt(d // self.n_heads)", "k.mT"), source=right)
    assert examined(wrong)["verdict"] == "fault"


STARRED = [
    changed(("forward(self, x)", "forward(self, *args)"), ("        b, t, d", "        x = args[0]\n        b, t, d")),
    changed(("forward(self, x)", "forward(self, **kwargs)"), ("        b, t, d", "        x = kwargs['x']\n        b, t, d")),
]  # fmt: skip


@pytest.mark.parametrize("source", STARRED)
def test_arguments_without_names(source):
    assert examined(source)["verdict"] == "no fault"


@pytest.mark.parametrize(
    ("attribute", "use"),
    [
        ('self.register_buffer("mask", torch.ones(4, 4).tril())', "weights = (q @ k.mT / math.sqrt(d // self.n_heads)).masked_fill(self.mask[:t, :t] == 0, -torch.inf)"),
        ("self.places = nn.Parameter(torch.zeros(4, d_model))", None),
    ],
)  # fmt: skip
def test_room_for_fewer_tokens_by_a_number_in_the_class(attribute, use):
    pairs = [
        (
            "        self.n_heads = n_heads\n",
            f"        self.n_heads = n_heads\n        {attribute}\n",
        )
    ]
    if use:
        pairs.append(("weights = (q @ k.mT / math.sqrt(d // self.n_heads))", use))
    else:
        pairs.append(
            ("b, t, d = x.shape", "b, t, d = x.shape\n        x = x + self.places[:t]")
        )
    answer = examined(changed(*pairs))
    assert answer["verdict"] == "no fault", answer["report"]
    assert any("4 tokens at most" in note for note in answer["notes"])
    tied = [
        (old, new.replace("(4", "(n_heads").replace(", 4", ", n_heads"))
        for old, new in pairs
    ]
    assert examined(changed(*tied))["verdict"] != "no fault"


def test_modules_without_numbers_of_their_own():
    whole = made(PLAIN, 24, 3).float()
    assert diagnose(whole.to("meta")).verdict in ("no fault", "cannot tell")
    quantized = torch.ao.quantization.quantize_dynamic(
        made(PLAIN, 24, 3).float(), {nn.Linear}
    )
    assert diagnose(quantized).verdict == "cannot tell"
