"""Settings beyond a plain forward pass: each has a right module and a wrong one.

What is wrong is shown by plain torch first, over the module's own weights; only then is
the debugger asked.
"""

import sys
import types

import pytest
from examined import examined

from steps.pytorch import nn, torch

pytestmark = pytest.mark.usefixtures("one_thread")

HEAD = """\
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, num_heads{more}):
        super().__init__()
        assert dim % num_heads == 0
        self.h = num_heads
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear({width}, dim)
        self.value = nn.Linear({width}, dim)
        self.out = nn.Linear(dim, dim)

    def split(self, t):
        return t.unflatten(-1, (self.h, -1)).transpose(1, 2)

"""
PLAIN = HEAD.format(more="", width="dim")
CAUSAL = """\
        later = torch.ones(k.shape[2], k.shape[2], dtype=torch.bool, device=x.device)
        later = later.triu(1)[k.shape[2] - x.shape[1]:]
"""
TAIL = """\
        made = weights @ v
        return self.out(made.transpose(1, 2).flatten(2))
"""
SCORES = """\
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
"""
READ = """\
        q, k, v = self.split(self.query(x)), self.split(self.key({of})), 0
        v = self.split(self.value({of}))
"""

CROSSED = (
    HEAD.format(more=", context_dim=None", width="context_dim or dim")
    + "    def forward(self, x, context=None):\n"
    + "        context = x if context is None else context\n"
    + READ.format(of="context")
    + SCORES
    + "        weights = scores.softmax(-1)\n"
    + TAIL
)
CACHED = (
    PLAIN
    + "    def forward(self, x, past=None):\n"
    + READ.format(of="x")
    + """\
        if past is not None:
            k = torch.cat((past[0], k), 2)
            v = torch.cat((past[1], v), 2)
"""
    + CAUSAL
    + SCORES
    + "        weights = scores.masked_fill(later, -torch.inf).softmax(-1)\n"
    + TAIL.replace("flatten(2))", "flatten(2)), (k, v)")
)
PADDED = (
    PLAIN.replace("Attention", "CausalAttention")
    + "    def forward(self, x, padding_mask=None):\n"
    + READ.format(of="x")
    + CAUSAL
    + """\
        hidden = later[None, None]
        if padding_mask is not None:
            hidden = hidden | (padding_mask[:, None, None] == 0)
"""
    + SCORES
    + "        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)\n"
    + TAIL
)
TURNED = (
    PLAIN.replace("Attention", "CausalAttention")
    + """\
    def turn(self, t, direction=1):
        steps = torch.arange(t.shape[2], dtype=t.dtype, device=t.device)[:, None]
        angles = direction * steps / 10 ** torch.linspace(0, 1, t.shape[3] // 2)
        a, b = t.chunk(2, -1)
        cos, sin = angles.cos().to(t.dtype), angles.sin().to(t.dtype)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def forward(self, x):
"""
    + READ.format(of="x")
    + """\
        q = self.turn(q)
        k = self.turn(k)
"""
    + CAUSAL
    + SCORES
    + "        weights = scores.masked_fill(later, -torch.inf).softmax(-1)\n"
    + TAIL
)
SWITCHED = (
    PLAIN.replace("{more}", "")
    .replace("num_heads):", "num_heads, causal=True):")
    .replace(
        "        self.h = num_heads\n",
        "        self.h = num_heads\n        self.causal = causal\n",
    )
    + "    def forward(self, x, mask=None):\n"
    + READ.format(of="x")
    + CAUSAL
    + SCORES
    + """\
        if self.causal:
            mask = ~later if mask is None else mask & ~later
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        weights = scores.softmax(-1)
"""
    + TAIL
)
HIDING = (
    PLAIN.replace("Attention", "CausalAttention")
    + "    def forward(self, x):\n"
    + READ.format(of="x")
    + CAUSAL
    + SCORES
    + """\
        scores = scores + later.to(x.dtype) * -1e30
        weights = scores.softmax(-1)
"""
    + TAIL
)


def module_of(source, **options):
    """The module, its numbers in float64."""
    made = types.ModuleType("sample")
    sys.modules["sample"] = made
    exec(compile(source, "sample.py", "exec"), vars(made))
    cls = next(v for n, v in vars(made).items() if n.endswith("Attention"))
    torch.default_generator.manual_seed(2)
    return cls(12, 3, **options).double().eval()


def plainly(m, q, k, v, hidden=None):
    """Attention of heads (B, H, T, D) by torch's own call, through the output layer."""
    seen = None if hidden is None else ~hidden
    made = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    return m.out(made.transpose(1, 2).flatten(2))


def inputs(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3)).double()


def heads(m, x, context=None):
    context = x if context is None else context
    return [
        m.split(layer(t))
        for layer, t in ((m.query, x), (m.key, context), (m.value, context))
    ]


def future(T):
    return torch.ones(T, T, dtype=torch.bool).triu(1)


def crossed_is_right(source):
    m, x, context = module_of(source, context_dim=8), inputs(2, 4, 12), inputs(2, 6, 8)
    try:
        out = m(x, context)
    except RuntimeError:
        return False
    return torch.allclose(out, plainly(m, *heads(m, x, context)))


def cached_is_right(source):
    m, x = module_of(source), inputs(2, 5, 12)
    whole = plainly(m, *heads(m, x), future(5))
    first, past = m(x[:, :3])
    second, _ = m(x[:, 3:], past)
    return torch.allclose(torch.cat((first, second), 1), whole)


def padded_is_right(source):
    m, x = module_of(source), inputs(2, 5, 12)
    seen = torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])
    out = m(x, seen)
    alone = plainly(m, *heads(m, x[1:, 2:]), future(3))
    return torch.allclose(out[1:, 2:], alone)


def turned_is_right(source):
    m, x = module_of(source), inputs(2, 5, 12)
    a, b = (
        torch.polar(
            torch.ones(5, 2), torch.arange(5.0)[:, None] / 10 ** torch.linspace(0, 1, 2)
        ).to(torch.complex128),
        None,
    )
    q, k, v = heads(m, x)
    q, k = (torch.complex(*t.chunk(2, -1)) * a for t in (q, k))
    q, k = (torch.cat((t.real, t.imag), -1) for t in (q, k))
    return b is None and torch.allclose(m(x), plainly(m, q, k, v, future(5)), atol=1e-6)


def switched_is_right(source):
    m, x = module_of(source), inputs(2, 5, 12)
    return torch.allclose(m(x), plainly(m, *heads(m, x), future(5)))


def in_float32_it_is_right(source):
    m, x = module_of(source).float(), inputs(2, 5, 12).float()
    return torch.allclose(m(x), plainly(m, *heads(m, x), future(5)), atol=1e-5)


SETTINGS = {
    "crossed": (CROSSED, crossed_is_right),
    "cached": (CACHED, cached_is_right),
    "padded": (PADDED, padded_is_right),
    "turned": (TURNED, turned_is_right),
    "switched": (SWITCHED, switched_is_right),
    "float32": (HIDING, in_float32_it_is_right),
}
# setting, old, new, a part of the line that a report must name, a word of its message
FAULTS = {
    "keys_of_x": (
        "crossed", "self.key(context)", "self.key(x)", "self.key(x)", "context",
    ),
    "width_of_x": (
        "crossed", "Linear(context_dim or dim", "Linear(dim", "self.key(context)",
        "wide",
    ),
    "new_keys_first": (
        "cached", "(past[0], k)", "(k, past[0])", "(k, past[0])", "order",
    ),
    "rows_from_zero": (
        "cached", "[k.shape[2] - x.shape[1]:]", "[:x.shape[1]]", "masked_fill", "part",
    ),
    "padding_lost": (
        "padded", "hidden = hidden | (padding_mask[:, None, None] == 0)",
        "hidden.logical_or(padding_mask[:, None, None] == 0)", "logical_or",
        "no effect",
    ),
    "padding_of_rows": (
        "padded", "padding_mask[:, None, None]", "padding_mask[:, None, :, None]",
        "padding_mask[:, None, :, None]", "usual form",
    ),
    "keys_not_turned": (
        "turned", "k = self.turn(k)", "k = k", "q = self.turn(q)", "not turned",
    ),
    "keys_turned_back": (
        "turned", "self.turn(k)", "self.turn(k, -1)", "self.turn(k, -1)", "apart",
    ),
    "causal_with_mask_only": (
        "switched", "mask = ~later if mask is None else mask & ~later",
        "mask = None if mask is None else mask & ~later", "mask & ~later", "optional",
    ),
    "digits_lost": (
        "float32", "scores + later.to(x.dtype) * -1e30",
        "scores + (~later).to(x.dtype) * 1e12", "* 1e12", "float32",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_a_right_module_is_cleared_and_the_setting_named(name):
    source, is_right = SETTINGS[name]
    assert is_right(source)
    answer = examined(source)
    assert answer["verdict"] == "no fault", answer["message"]
    word = {
        "crossed": "context", "cached": "in parts", "padded": "padding mask",
        "turned": "repeated", "switched": "'mask'", "float32": "float32",
    }[name]  # fmt: skip
    assert word in " ".join(answer["tried"])


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_another_setting_is_found(name):
    setting, old, new, line, word = FAULTS[name]
    right, is_right = SETTINGS[setting]
    assert right.count(old) >= 1
    source = right.replace(old, new)
    assert not is_right(source)
    answer = examined(source)
    assert answer["verdict"] == "fault", answer["report"]
    assert line in source.splitlines()[answer["line"] - 1], answer["report"]
    assert word in answer["message"]


# What is wrong only where nobody asked: the mask that is put in, and what is said.
RISKS = {
    "half": ("scores.masked_fill(later, -1e9)", "float16"),
    "large_scores": ("scores + later.to(x.dtype) * -1e4", "Scores of"),
    "device": ("scores.masked_fill(torch.ones(*later.shape).triu(1) > 0, -torch.inf)",
               "CPU"),
}  # fmt: skip


@pytest.mark.parametrize("setting", RISKS)
def test_a_risk_stands_beside_a_right_module(setting):
    new, word = RISKS[setting]
    source = HIDING.replace("scores + later.to(x.dtype) * -1e30", new)
    assert in_float32_it_is_right(source)
    answer = examined(source)
    assert answer["verdict"] == "no fault", answer["report"]
    assert [risk["setting"] for risk in answer["risks"]] == [setting]
    risk = answer["risks"][0]
    assert new in source.splitlines()[risk["line"] - 1]
    assert word in risk["message"]
    tried = {"half": "float16", "large_scores": "large scores"}
    assert tried.get(setting, "another device") not in answer["tried"]


def test_what_was_not_tried_is_exact():
    source = CROSSED.replace("context=None", "context=None, bias=None, window=3")
    answer = examined(source)
    assert answer["verdict"] == "no fault"
    told = {text.split("=")[0] for text in answer["not_tried"]}
    assert told == {"bias", "window"}


def test_keyword_arguments_alone_are_read_from_the_text():
    source = HIDING.replace(
        "    def forward(self, x):\n",
        '    def forward(self, **kwargs):\n        x = kwargs["hidden"]\n',
    )
    assert examined(source)["verdict"] == "no fault"
