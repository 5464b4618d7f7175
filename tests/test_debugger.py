# ruff: noqa: E501 - a fault and its style on a row each
"""The debugger on faults planted into right modules, and on files that misbehave.

Two styles are broken in every way below: the line of each fault is known because the
test put it there. More modules, right and wrong, are in attention_cases/.
"""

import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from steps.attention import CausalAttention, MultiHeadAttention, SelfAttention_v2
from steps.debugger import diagnose
from steps.debugger.command import check, split_target
from steps.debugger.examine import examine_file
from steps.pytorch import nn, torch

ROOT = Path(__file__).parent.parent

APART = """\
import torch
import torch.nn as nn


class MultiHeadAttention(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads, qkv_bias=False):
        super().__init__()
        assert d_out % num_heads == 0, "d_out must be divisible by num_heads"
        self.d_out, self.num_heads = d_out, num_heads
        self.head_dim = d_out // num_heads
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        mask = torch.triu(torch.ones(context_length, context_length), diagonal=1)
        self.register_buffer("mask", mask.bool())

    def forward(self, x):
        b, n, _ = x.shape
        queries = self.W_query(x).view(b, n, self.num_heads, self.head_dim)
        keys = self.W_key(x).view(b, n, self.num_heads, self.head_dim)
        values = self.W_value(x).view(b, n, self.num_heads, self.head_dim)
        queries, keys = queries.transpose(1, 2), keys.transpose(1, 2)
        values = values.transpose(1, 2)
        scores = queries @ keys.transpose(2, 3)
        scores = scores / self.head_dim**0.5
        scores = scores.masked_fill(self.mask[:n, :n], -torch.inf)
        weights = torch.softmax(scores, dim=-1)
        weights = self.dropout(weights)
        contexts = weights @ values
        joined = contexts.transpose(1, 2).contiguous().view(b, n, self.d_out)
        return self.out_proj(joined)
"""

PACKED = """\
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, heads, max_len, drop=0.0):
        super().__init__()
        if dim % heads:
            raise ValueError("dim is not a multiple of heads")
        self.h = heads
        self.scale = (dim // heads) ** -0.5
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.drop = nn.Dropout(drop)
        bias = torch.full((max_len, max_len), -torch.inf).triu(1)
        self.register_buffer("bias", bias)

    def forward(self, x):
        b, t, c = x.shape
        packed = self.qkv(x).view(b, t, 3, self.h, c // self.h)
        q, k, v = packed.permute(2, 0, 3, 1, 4)
        s = torch.einsum("bhid,bhjd->bhij", q, k)
        s = s * self.scale
        s = s + self.bias[:t, :t]
        w = s.softmax(-1)
        w = self.drop(w)
        y = torch.einsum("bhij,bhjd->bhid", w, v)
        y = y.permute(0, 2, 1, 3).reshape(b, t, c)
        return self.proj(y)
"""

# (kind of fault, style, right text, wrong text, a word of the report)
FAULTS = [
    ("split", APART, "queries = self.W_query(x).view(b, n, self.num_heads, self.head_dim)",
     "queries = self.W_query(x).view(b, self.num_heads, n, -1).transpose(1, 2)", "places"),
    ("split", PACKED, ".view(b, t, 3, self.h, c // self.h)",
     ".view(b, 3, t, self.h, c // self.h).transpose(1, 2)", "places"),
    ("layer", APART, "values = self.W_value(x)", "values = self.W_key(x)", "W_key"),
    ("scores", APART, "scores = queries @ keys.transpose(2, 3)",
     "scores = keys @ queries.transpose(2, 3)", "rows"),
    ("scores", PACKED, "q, k)", "q, v)", "values"),
    ("scale", APART, "scores / self.head_dim**0.5", "scores / self.d_out**0.5", "sqrt(40)"),
    ("scale", APART, "scores / self.head_dim**0.5", "scores / self.head_dim**-0.5", "sqrt(10)"),
    ("scale", PACKED, "s * self.scale", "s / self.scale", "sqrt(10)"),
    ("scale", PACKED, "(dim // heads) ** -0.5", "dim ** -0.5", "sqrt(40)"),
    ("mask", APART, "diagonal=1", "diagonal=0", "itself"),
    ("mask", APART, "self.mask[:n, :n]", "~self.mask[:n, :n]", "wrong way round"),
    ("mask", APART, "-torch.inf)", "-9.0)", "not far below"),
    ("mask", APART, "scores = scores.masked_fill", "scores.masked_fill", "result"),
    ("mask", PACKED, "-torch.inf).triu(1)", "-torch.inf).triu(2)", ""),
    ("no mask", PACKED, "s = s + self.bias[:t, :t]", "s = s", "future"),
    ("softmax", APART, "dim=-1)", "dim=-2)", "queries"),
    ("softmax", PACKED, "s.softmax(-1)", "s.softmax(1)", "heads"),
    ("softmax", PACKED, "s.softmax(-1)", "s.softmax(-1).softmax(-1)", ""),
    ("values", PACKED, "bhij,bhjd", "bhji,bhjd", ""),
    ("merge", APART, "contexts.transpose(1, 2).contiguous().view(", "contexts.reshape(", "places"),
    ("merge", PACKED, "y.permute(0, 2, 1, 3)", "y.permute(0, 2, 3, 1)", "places"),
    ("output", APART, "return self.out_proj(joined)", "return joined", "not projected"),
    ("output", PACKED, "return self.proj(y)", "self.proj(y); return y", ""),
    ("raises", APART, "contexts.transpose(1, 2).contiguous().view(",
     "contexts.transpose(1, 2).view(", "contiguous"),
    ("raises", APART, "self.mask[:n, :n]", "self.mask", "13"),
    ("raises", APART, "self.out_proj = nn.Linear(d_out, d_out)",
     "self.out_proj = nn.Linear(d_in, d_out)", "40 features"),
    ("raises later", PACKED, "self.qkv = nn.Linear(dim, 3 * dim)", "self.qkv = nn.Linear(dim, dim)", ""),
    ("dropout in eval", APART, "self.dropout(weights)",
     "nn.functional.dropout(weights, 0.5)", "eval mode"),
    ("dropout in eval", PACKED, "self.drop(w)", "nn.functional.dropout(w, 0.1)", "eval mode"),
    ("dropout on scores", APART, "torch.softmax(scores, dim=-1)",
     "torch.softmax(self.dropout(scores), dim=-1)", "before the softmax"),
    ("dropout on values", PACKED, "w, v)", "w, self.drop(v))", "values"),
    ("dropout lost", APART, "weights = self.dropout(weights)", "self.dropout(weights)", "drop"),
    ("dropout rate", PACKED, "nn.Dropout(drop)", "nn.Dropout(0.5)", "0.5"),
    ("half precision", APART, "-torch.inf)", "-1e9)", "float16"),
    ("half precision", PACKED, "w = s.softmax(-1)", "w = s.float().softmax(-1).to(s.dtype)"
     ".masked_fill(s < -1e30, -1e9).clamp(min=0)", "float16"),
    ("not a buffer", APART, 'self.register_buffer("mask", mask.bool())',
     "self.mask = mask.bool()", "buffer"),
    ("not a buffer", PACKED, 'self.register_buffer("bias", bias)', "self.bias = bias", "buffer"),
    ("on the CPU", PACKED, "self.bias[:t, :t]",
     "torch.full((t, t), -torch.inf, dtype=x.dtype).triu(1)", "device"),
    ("not a parameter", APART, "self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)",
     "self.W_key = (lambda w: lambda x: x @ w)(torch.randn(d_in, d_out))", ""),
    ("gradient", APART, "keys.transpose(1, 2)\n", "keys.detach().transpose(1, 2)\n", "gradient"),
    ("gradient", PACKED, "self.proj(y)", "self.proj(y.data)", "gradient"),
    ("bias flag", APART, "self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)",
     "self.W_value = nn.Linear(d_in, d_out)", "bias"),
    ("unused", APART, "self.dropout = nn.Dropout(dropout)",
     "self.dropout = nn.Dropout(dropout); self.spare = nn.Linear(d_in, d_out)", "never used"),
    ("length", PACKED, "self.bias[:t, :t]", "self.bias[:t, :t].squeeze(0)"
     ".expand(b, 1, t, t).squeeze()[:, None]", ""),
]  # fmt: skip
LOOSE = {
    "not a parameter",
    "length",
    "no mask",
    "raises later",
}  # the fault is found, its line is not promised


def planted(style, right, wrong):
    """The source with the fault in, and the line it is on."""
    assert style.count(right) == 1, right
    return style.replace(right, wrong), style[: style.index(right)].count("\n") + 1


@pytest.fixture
def examine(tmp_path):
    def run(source, **options):
        file = tmp_path / "my_attention.py"
        file.write_text(source)
        return examine_file(str(file), **options)

    return run


@pytest.mark.parametrize("style", [APART, PACKED])
def test_the_right_styles_have_no_fault(examine, style):
    found = examine(style)
    assert found.verdict == "no fault", found.message
    assert found.line is None
    assert not any(row["first_wrong"] for row in found.trace)


@pytest.mark.parametrize(
    ("kind", "style", "right", "wrong", "word"),
    FAULTS,
    ids=[f"{kind}-{number}" for number, (kind, *_) in enumerate(FAULTS)],
)
def test_a_planted_fault_is_found_at_its_line(examine, kind, style, right, wrong, word):
    source, line = planted(style, right, wrong)
    found = examine(source)
    assert found.verdict == "fault", found.message
    assert word in f"{found.message} {found.got} {found.expected}"
    if kind not in LOOSE:
        assert line in (found.line, found.seen_at), (found.line, found.message)
    assert found.message
    assert found.message.isascii()
    assert all(len(row) <= 100 for row in str(found).splitlines())


SPLITS = [".view(b, n, self.num_heads, self.head_dim).transpose(1, 2)"]
ROUTES = {
    "fused": (APART, [
        ("scores = queries @ keys.transpose(2, 3)\n", "scores = None\n"),
        ("        scores = scores / self.head_dim**0.5\n", ""),
        ("        scores = scores.masked_fill(self.mask[:n, :n], -torch.inf)\n", ""),
        ("        weights = torch.softmax(scores, dim=-1)\n", ""),
        ("        weights = self.dropout(weights)\n", ""),
        ("weights @ values", "nn.functional.scaled_dot_product_attention(queries, keys, values, "
         "is_causal=True, dropout_p=self.dropout.p if self.training else 0.0)"),
    ]),
    "query scaled first": (APART, [
        ("scores = queries @", "scores = (queries / self.head_dim**0.5) @"),
        ("scores = scores / self.head_dim**0.5", "scores = scores * 1"),
    ]),
    "scaled in the softmax": (APART, [
        ("        scores = scores / self.head_dim**0.5\n", ""),
        ("softmax(scores,", "softmax(scores / self.head_dim**0.5,"),
    ]),
    "exponentials by hand": (PACKED, [
        ("w = s.softmax(-1)", "e = (s - s.amax(-1, keepdim=True)).exp()\n"
         "        w = e / e.sum(-1, keepdim=True)"),
    ]),
    "masked afterwards": (PACKED, [
        ("s = s + self.bias[:t, :t]", "see = (self.bias[:t, :t] == 0)"),
        ("w = s.softmax(-1)", "w = s.softmax(-1) * see\n        w = w / w.sum(-1, keepdim=True)"),
    ]),
    "heads one by one": (PACKED, [
        ('y = torch.einsum("bhij,bhjd->bhid", w, v)',
         "y = torch.stack([w[:, i] @ v[:, i] for i in range(self.h)], dim=1)"),
    ]),
    "scores transposed throughout": (PACKED, [
        ('"bhid,bhjd->bhij"', '"bhid,bhjd->bhji"'),
        ("self.bias[:t, :t]", "self.bias[:t, :t].T"),
        ("s.softmax(-1)", "s.softmax(-2)"),
        ('"bhij,bhjd->bhid"', '"bhji,bhjd->bhid"'),
    ]),
    "packed by head": (PACKED, [
        (".view(b, t, 3, self.h, c // self.h)", ".view(b, t, self.h, 3, c // self.h)"),
        (".permute(2, 0, 3, 1, 4)", ".permute(3, 0, 2, 1, 4)"),
    ]),
    "packed with keys first": (PACKED, [("q, k, v = packed", "k, q, v = packed")]),
    "residual and norm inside": (PACKED, [
        ("self.drop = nn.Dropout(drop)", "self.drop = nn.Dropout(drop); self.norm = nn.LayerNorm(dim)"),
        ("return self.proj(y)", "return self.norm(x + self.proj(y))"),
    ]),
    "weights returned": (APART, [("return self.out_proj(joined)", "return self.out_proj(joined), weights")]),
}  # fmt: skip


@pytest.mark.parametrize("route", ROUTES)
def test_a_legitimate_route_has_no_fault(examine, route):
    source, changes = ROUTES[route]
    for right, other in changes:
        assert source.count(right) == 1, right
        source = source.replace(right, other)
    found = examine(source)
    assert found.verdict == "no fault", f"line {found.line}: {found.message}"


def test_rotary_positions_are_no_fault(examine):
    source = PACKED.replace(
        "        s = torch.einsum",
        "        turn = torch.arange(t, device=x.device)[:, None] / 10.0\n"
        "        cos, sin = turn.cos().to(x.dtype), turn.sin().to(x.dtype)\n"
        "        half = c // self.h // 2\n"
        "        q = torch.cat([q[..., :half] * cos - q[..., half:] * sin,\n"
        "                       q[..., half:] * cos + q[..., :half] * sin], -1)\n"
        "        k = torch.cat([k[..., :half] * cos - k[..., half:] * sin,\n"
        "                       k[..., half:] * cos + k[..., :half] * sin], -1)\n"
        "        s = torch.einsum",
        1,
    )
    assert examine(source).verdict == "no fault"
    wrong = examine(source.replace("s * self.scale", "s"))
    assert wrong.verdict == "fault"
    assert "sqrt(10)" in wrong.message


def test_a_module_without_a_mask_is_judged_as_it_claims(examine):
    source = PACKED
    source = source.replace(
        "        bias = torch.full((max_len, max_len), -torch.inf).triu(1)\n", ""
    )
    source = source.replace('        self.register_buffer("bias", bias)\n', "")
    source = source.replace("dim, heads, max_len, drop", "dim, heads, drop")
    source = source.replace("        s = s + self.bias[:t, :t]\n", "")
    assert examine(source).verdict == "no fault"
    assert examine(source, causal=True).verdict == "fault"
    assert examine(APART, causal=False).verdict == "fault"


def test_diagnose_takes_classes_and_instances():
    assert diagnose(MultiHeadAttention).verdict == "no fault"
    torch.manual_seed(0)
    instance = MultiHeadAttention(5, 12, 9, 0.1, 3)
    before = {name: tensor.clone() for name, tensor in instance.state_dict().items()}
    found = diagnose(instance)
    assert found.verdict == "no fault", found.message
    assert instance.training
    for name, tensor in instance.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert diagnose(CausalAttention).verdict == "no fault"
    assert diagnose(SelfAttention_v2).verdict == "no fault"
    with pytest.raises(TypeError, match="int"):
        diagnose(3)


def test_a_black_box_says_that_it_is_one(examine):
    source = (
        "import torch\nfrom torch import nn\n\n\nclass MyAttention(nn.Module):\n"
        "    def __init__(self, d_in, context_length):\n        super().__init__()\n"
        "        self.w = nn.Linear(d_in, d_in)\n\n"
        "    def forward(self, x):\n        return {}\n"
    )
    found = examine(source.format("self.w(x).cumsum(1)"))
    assert found.verdict == "cannot tell"
    assert "Black-box" in found.message
    assert any("causal" in note for note in found.notes)
    leak = examine(source.format("self.w(x) + x.mean(1, keepdim=True)"))
    assert leak.verdict == "fault"
    assert "not causal" in leak.message
    mixed = examine(source.format("self.w(x) + x.mean(0, keepdim=True)"))
    assert mixed.verdict == "fault"
    assert "mixed" in mixed.message


BROKEN = {
    "def f(:\n": "line 1: syntax error",
    "x = 1\n": "no nn.Module class",
    "import no_such_package\n": "'no_such_package', which is not installed",
    "from torch import nn\nclass A(nn.Module):\n    def __init__(self, zork):\n"
    "        super().__init__()\n    def forward(self, x):\n        return x\n": "'zork'",
    "raise SystemExit(3)\n": "line 1: running it ends with SystemExit: 3",
    "1 / 0\n": "ZeroDivisionError",
    "\0": "",
}


@pytest.mark.parametrize("source", BROKEN)
def test_what_cannot_be_examined_is_said_in_a_line(examine, source):
    found = examine(source)
    assert found.verdict == "cannot tell"
    assert BROKEN[source] in found.message
    assert "\n" not in found.message


def test_the_next_file_is_still_examined(tmp_path, capsys):
    names = ["endless.py", "broken.py", "right.py", "absent.py", "wrong.py"]
    endless = (
        "while True:\n    try:\n        pass\n    except BaseException:\n        pass\n"
    )
    sources = [endless, "def (", APART, None, APART.replace("dim=-1)", "dim=1)")]
    for name, source in zip(names, sources, strict=True):
        if source is not None:
            (tmp_path / name).write_text(source)
    start = time.monotonic()
    code = check([str(tmp_path / name) for name in names], as_json=True, timeout=1)
    assert time.monotonic() - start < 60  # that it ends at all
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    told = ["cannot tell", "cannot tell", "no fault", "cannot tell", "fault"]
    assert [answer["verdict"] for answer in answers] == told
    assert "--timeout" in answers[0]["message"]
    assert code == 1
    assert check([str(tmp_path / "right.py")]) == 0
    assert check([str(tmp_path / "right.py"), str(tmp_path / "broken.py")]) == 2


def test_an_endless_forward_is_given_up(examine):
    source = APART.replace(
        "        b, n, _ = x.shape\n", "        while True:\n            pass\n"
    )
    found = examine(source, timeout=1)
    assert found.verdict == "cannot tell"
    assert "1 seconds" in found.message


def test_nothing_is_left_changed(examine, tmp_path, capsys):
    (tmp_path / "helper_of_mine.py").write_text("WIDTH = 3\n")
    (tmp_path / "elsewhere").mkdir()
    source = (
        "import os, random, sys, warnings\nimport helper_of_mine\n"
        + APART.replace(
            "        b, n, _ = x.shape\n",
            "        b, n, _ = x.shape\n        print('shape', x.shape)\n"
            "        torch.manual_seed(5)\n        random.seed(5)\n",
        )
        + "\n\ntorch.set_default_dtype(torch.float64)\ntorch.manual_seed(1)\n"
        "random.seed(1)\nos.chdir('elsewhere')\nos.environ['MY_FLAG'] = '1'\n"
        "sys.path.append('/nowhere')\ntorch.set_grad_enabled(False)\nprint('hello')\n"
        "print('oops', file=sys.stderr)\n"
        "if __name__ == '__main__':\n    raise RuntimeError('run as a program')\n"
    )
    os.chdir(tmp_path)
    before = (
        torch.get_rng_state(), random.getstate(), torch.get_default_dtype(), os.getcwd(),
        dict(os.environ), list(sys.path), set(sys.modules), torch.is_grad_enabled(),
        torch.get_num_threads(),
    )  # fmt: skip
    found = examine(source)
    after = (
        torch.get_rng_state(), random.getstate(), torch.get_default_dtype(), os.getcwd(),
        dict(os.environ), list(sys.path), set(sys.modules), torch.is_grad_enabled(),
        torch.get_num_threads(),
    )  # fmt: skip
    assert found.verdict == "no fault", found.message
    assert torch.equal(before[0], after[0])
    assert before[1:6] == after[1:6]
    assert "helper_of_mine" not in sys.modules
    assert "my_attention" not in sys.modules
    assert before[7:] == after[7:]
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == ""
    os.chdir(ROOT)


def test_several_classes_one_is_chosen_and_said(examine):
    source = APART + (
        "\n\nclass FeedForward(nn.Module):\n    def __init__(self, d_in):\n"
        "        super().__init__()\n        self.w = nn.Linear(d_in, d_in)\n\n"
        "    def forward(self, x):\n        return self.w(x)\n"
    )
    found = examine(source)
    assert found.examined.startswith("MultiHeadAttention(")
    assert "FeedForward" in found.examined
    assert examine(source, name="FeedForward").verdict == "cannot tell"
    assert "FeedForward" in examine(source, name="Nothing").message
    assert split_target("a.py:Cls") == ("a.py", "Cls")
    assert split_target("a.py") == ("a.py", None)


def test_build_says_how(examine):
    source = APART.replace("num_heads, qkv_bias=False", "zork, qkv_bias=False")
    source = source.replace("num_heads = d_out, num_heads", "num_heads = d_out, zork")
    source = source.replace("// num_heads", "// zork").replace("% num_heads", "% zork")
    assert "--build" in examine(source).message
    call = "MultiHeadAttention(6, 20, 9, 0.1, zork=5)"
    found = examine(source, expression=call)
    assert found.verdict == "no fault", found.message
    assert examine(source, expression="MultiHeadAttention(").verdict == "cannot tell"
    assert "int" in examine(source, expression="len('a')").message


@pytest.mark.parametrize(("style", "line"), [(APART, 29), (PACKED, 25)])
def test_the_line_is_known_without_columns(examine, monkeypatch, style, line):
    from steps.walk import recorder

    def place(self, frame):
        code = frame.f_code
        return recorder.Place(
            code.co_filename, frame.f_lineno, frame.f_lineno, None, None
        )

    monkeypatch.setattr(recorder.Recorder, "_place", place)
    assert examine(style).verdict == "no fault"
    wrong = style.replace("dim=-1)", "dim=1)").replace("softmax(-1)", "softmax(1)")
    found = examine(wrong)
    assert (found.verdict, found.line) == ("fault", line)


def test_the_command_and_its_exit_codes(tmp_path):
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(PACKED)
    wrong.write_text(PACKED.replace("s * self.scale", "s"))

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "steps.step23", *map(str, arguments)],
            cwd=ROOT, capture_output=True, text=True,
        )  # fmt: skip

    done = run(right)
    assert (done.returncode, done.stderr) == (0, "")
    assert "no fault" in done.stdout
    done = run("--json", right, f"{wrong}:Attention")
    assert (done.returncode, done.stderr) == (1, "")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    wanted = {
        "file",
        "verdict",
        "line",
        "column",
        "statement",
        "kind",
        "expected",
        "got",
    }
    assert all(wanted | {"message", "trace"} <= set(row) for row in rows)
    assert rows[1]["file"] == str(wrong)
    assert rows[1]["kind"] == "scale"
    assert run(tmp_path / "none.py").returncode == 2
    done = run("--timeout", "soon", right)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_trace_rows_hold_the_numbers():
    found = diagnose(MultiHeadAttention)
    keys = "line column end_line end_column statement expression name function shape stage axes"
    for row in found.trace:
        assert set(keys.split()) <= set(row)
        assert tuple(row["shape"]) == tuple(row["values"].shape)
    named = {row["name"]: row for row in found.trace}
    assert named["head_queries"]["axes"] == ["B", "H", "T", "D"]
    assert named["head_contexts"]["stage"] == "contexts"
    weights = next(row for row in found.trace if row["stage"] == "weights")["values"]
    assert torch.allclose(weights.sum(-1), torch.ones(()).double())


def test_a_class_without_a_file_is_examined():
    names = {"__name__": "cell"}
    exec(compile(APART.replace("dim=-1)", "dim=1)"), "<cell 3>", "exec"), names)
    found = diagnose(names["MultiHeadAttention"])
    assert (found.verdict, found.line, found.kind) == ("fault", 29, "softmax")


def test_what_is_no_attention_is_not_called_wrong(examine):
    assert diagnose(nn.Linear(3, 3)).verdict == "cannot tell"

    class Forgetful(nn.Module):
        def __init__(self):
            self.width = 3

    assert "super().__init__()" in diagnose(Forgetful).message
    learnt = PACKED.replace(
        "s = s * self.scale", "s = s * self.scale + self.near[:t, :t]"
    )
    learnt = learnt.replace(
        "        self.h = heads\n",
        "        self.h = heads\n"
        "        self.near = nn.Parameter(torch.randn(max_len, max_len))\n",
    )
    found = examine(learnt)
    assert found.verdict == "cannot tell"
    assert "learnt" in found.message
    norm = PACKED.replace(
        "        s = torch", "        q = nn.functional.elu(q)\n        s = torch"
    )
    assert examine(norm).verdict == "cannot tell"


def test_fewer_key_heads_than_query_heads(examine):
    grouped = (
        PACKED.replace("self.qkv = nn.Linear(dim, 3 * dim)", "self.qkv = nn.Linear(dim, 2 * dim)")
        .replace("packed = self.qkv(x).view(b, t, 3, self.h, c // self.h)",
                 "q, k, v = self.qkv(x).split([c, c // 2, c // 2], -1)")
        .replace("q, k, v = packed.permute(2, 0, 3, 1, 4)",
                 "q, k, v = (z.view(b, t, -1, c // self.h).transpose(1, 2) for z in (q, k, v))\n"
                 "        k, v = (z.repeat_interleave(2, 1) for z in (k, v))")
    )  # fmt: skip
    assert examine(grouped).verdict != "fault"


def attention_of(context=16):
    return MultiHeadAttention(12, 12, context, 0.1, 3)


def test_diagnose_looks_inside_wrappers():
    for module in (
        torch.compile(attention_of()),
        nn.DataParallel(attention_of()),
        torch.compile(nn.DataParallel(attention_of())),
    ):
        assert diagnose(module).verdict == "no fault"


def test_diagnose_under_inference_mode():
    with torch.inference_mode():
        module = attention_of()
        assert diagnose(module).verdict == "no fault"
    assert diagnose(module).verdict == "no fault"


def test_a_mask_without_numbers_is_said():
    with torch.device("meta"):
        module = attention_of()
    found = diagnose(module)
    assert found.verdict == "cannot tell"
    assert "meta device" in found.message


def test_a_context_of_one_token_is_said():
    found = diagnose(attention_of(context=1))
    assert found.verdict == "cannot tell"
    assert "one token" in found.message
    assert diagnose(attention_of(context=2)).verdict == "no fault"


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 12)
        self.attention = attention_of()

    def forward(self, numbers):
        return self.attention(self.words(numbers))


class Pictures(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 12, 4, 4)
        self.attention = attention_of()

    def forward(self, pictures):
        return self.attention(self.patches(pictures).flatten(2).transpose(1, 2))


@pytest.mark.parametrize(
    ("cls", "takes"), [(Words, "token numbers"), (Pictures, "pictures")]
)
def test_a_model_of_other_inputs_is_no_fault(cls, takes):
    for found in (diagnose(cls()), diagnose(cls)):
        assert found.verdict == "cannot tell"
        assert takes in found.message
        assert "'attention'" in found.message


def test_an_error_of_the_recorder_is_no_verdict(examine, monkeypatch):
    from steps.debugger.run import Watcher

    def broken(self, *_):
        raise KeyError("ours")

    monkeypatch.setattr(Watcher, "_follow_device", broken)
    found = examine(APART)
    assert found.verdict == "cannot tell"
    assert found.message.startswith("the debugger failed: KeyError")
    assert diagnose(attention_of()).verdict == "cannot tell"


@pytest.mark.parametrize(
    ("kind", "returned"),
    [
        ("nested", "torch.nested.nested_tensor(list(out))"),
        ("sparse", "out.to_sparse()"),
        ("meta", "out.to('meta')"),
        ("quantized", "torch.quantize_per_tensor(out.float(), 0.1, 0, torch.qint8)"),
    ],
)
def test_a_tensor_of_another_kind_is_said(examine, kind, returned):
    class_ = APART.replace("return ", "out = ", 1)
    found = examine(f"{class_}\n        return {returned}\n")
    assert found.verdict == "cannot tell"
    assert f"a {kind} tensor" in found.message


def test_an_input_changed_in_place_is_said(examine):
    found = examine(
        APART.replace("b, n, _ = x.shape", "x *= 2\n        b, n, _ = x.shape")
    )
    assert (found.verdict, found.kind) == ("fault", "input")
    assert found.statement == "x *= 2"


def test_a_mask_that_was_not_wanted_is_said(examine):
    found = examine(APART, causal=False)
    assert (found.verdict, found.kind) == ("fault", "mask")
    assert "every token may look at every other" in found.message
    assert "masked_fill" in found.statement


def test_a_forward_under_inference_mode_is_never_trained(examine):
    found = examine(
        APART.replace("    def forward", "    @torch.inference_mode()\n    def forward")
    )
    assert (found.verdict, found.kind) == ("fault", "training")
    assert "inference_mode" in found.statement


def test_two_number_types_are_no_fault_of_the_values(examine):
    found = examine(
        APART.replace(
            "values = values.transpose(1, 2)", "values = values.transpose(1, 2).float()"
        )
    )
    assert (found.verdict, found.kind) == ("fault", "precision")


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("MultiHeadAttention", "missing"),
        ("exit()", "SystemExit"),
        ("torch.jit.script(nn.Linear(2, 2))", "TorchScript"),
        ("nn.Transformer(12, 3)", "PyTorch's own"),
    ],
)
def test_what_build_cannot_make_is_said(examine, expression, says):
    found = examine(APART, expression=expression)
    assert found.verdict == "cannot tell"
    assert says in found.message
    assert "failed" not in found.message


def test_diagnose_leaves_the_default_device_alone():
    module = attention_of()
    with torch.device("meta"):
        assert diagnose(module).verdict == "no fault"
        assert torch.get_default_device().type == "meta"
    assert diagnose(module).verdict == "no fault"
    assert torch.get_default_device().type == "cpu"


LAZY = """\
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
"""


def test_lazy_layers_get_their_sizes(examine):
    found = examine(LAZY)
    assert found.verdict == "no fault", found.message
    wrong = examine(LAZY.replace("** 0.5", "** 1.5"))
    assert (wrong.verdict, wrong.kind) == ("fault", "scale")


ONE_KEY_HEAD = """\
import torch
from torch import einsum, nn


class MultiQuery(nn.Module):
    def __init__(self, dim, heads, dim_head):
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(dim, heads * dim_head, bias=False)
        self.to_kv = nn.Linear(dim, 2 * dim_head, bias=False)
        self.to_out = nn.Linear(heads * dim_head, dim, bias=False)

    def forward(self, x):
        q, k, v = (self.to_q(x), *self.to_kv(x).chunk(2, dim=-1))
        q = q.unflatten(-1, (self.heads, -1)).transpose(1, 2) * k.shape[-1] ** -0.5
        share = einsum("b h i d, b j d -> b h i j", q, k).softmax(dim=-1)
        out = einsum("b h i j, b j d -> b h i d", share, v)
        return self.to_out(out.transpose(1, 2).flatten(2))
"""


def test_one_head_of_keys_and_values_for_all_queries(examine):
    found = examine(ONE_KEY_HEAD)
    assert found.verdict == "no fault", found.message
    wrong = examine(ONE_KEY_HEAD.replace("share, v)", "share, k)"))
    assert wrong.verdict == "fault"


def test_values_that_no_layer_makes(examine):
    source = APART.replace("d_in, d_out, context", "d_out, context")
    source = source.replace("Linear(d_in", "Linear(d_out")
    source = source.replace("self.W_value(x)", "x")
    found = examine(source)
    assert (found.verdict, found.kind) == ("fault", "projection")
    assert "values are x itself" in found.message


def test_what_was_made_up_for_forward_is_not_held_against_it(examine):
    source = APART.replace("def forward(self, x):", "def forward(self, x, freqs_cis):")
    source = source.replace("b, n, _ =", "freqs_cis.view(3, -1, 77)\n        b, n, _ =")
    found = examine(source)
    assert found.verdict == "cannot tell"
    assert "freqs_cis" in found.message


EITHER_AXIS = """\
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.inner = nn.MultiheadAttention(embed_dim, num_heads)

    def forward(self, x):
        return self.inner(x, x, x, need_weights=False)[0]
"""


def test_tokens_first_where_nothing_says_which_axis_they_are(examine):
    found = examine(EITHER_AXIS)
    assert found.verdict == "cannot tell"
    assert "batch_first=True" in found.message
    said = EITHER_AXIS.replace(
        "        return", "        tokens, batch, _ = x.shape\n        return"
    )
    assert examine(said).verdict == "no fault"
    assert diagnose(nn.Embedding(9, 4)).message.endswith("a vector for each token")


def test_angles_as_pairs_of_numbers(examine):
    turned = """\
def turn(x, pairs):
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
    c, s = pairs.view(1, x.shape[1], 1, -1, 2).unbind(-1)
    return torch.stack((a * c - b * s, a * s + b * c), -1).flatten(-2)


class MultiHeadAttention"""
    source = APART.replace("class MultiHeadAttention", turned)
    source = source.replace("def forward(self, x):", "def forward(self, x, freqs_cis):")
    source = source.replace(
        "        queries, keys =",
        "        queries, keys = turn(queries, freqs_cis), turn(keys, freqs_cis)\n"
        "        queries, keys =",
    )
    assert examine(source).verdict == "no fault"


@pytest.mark.parametrize(
    "held",
    [
        "import threading; self.held = threading.Lock()",
        "self.held = (number for number in range(3))",
        "self.held = []; self.held.append(self.held)",
        "self.held = {}; self.held['held'] = self.held",
        "self.held = [self]",
        "self.held = held = []; [held := held[0] for _ in range(5000) if not held.append([])]",
    ],
)
def test_what_a_module_holds_beside_its_layers(examine, held):
    source = APART.replace("super().__init__()", f"super().__init__(); {held}")
    found = examine(source)
    assert found.verdict == "no fault", found.message
    wrong = examine(source.replace("nn.Dropout(dropout)", "nn.Dropout(1 - dropout)"))
    assert (wrong.verdict, wrong.kind) == ("fault", "dropout")


def test_layers_that_hold_one_another(examine):
    held = "self.inner = nn.Module(); self.inner.outer = self"
    source = APART.replace("super().__init__()", f"super().__init__(); {held}")
    found = examine(source)
    assert found.verdict == "cannot tell"
    assert "hold one another" in found.message


def test_an_instance_that_cannot_be_copied_is_said():
    module = attention_of()
    module.lock = threading.Lock()
    found = diagnose(module)
    assert found.verdict == "cannot tell"
    assert found.message.startswith("cannot be copied, and is not examined itself: Typ")


@pytest.mark.parametrize(
    "timeout", [float("nan"), float("inf"), -1, 0, "x", None, True]
)
def test_a_time_limit_that_is_none(timeout):
    with pytest.raises((TypeError, ValueError), match="seconds above 0, at most 86400"):
        diagnose(attention_of(), timeout=timeout)


def test_a_constructor_that_could_not_be_given_anything(examine):
    for parameters, reads in (
        ("*args, **kwargs", "args[0]"),
        ("config", "dict(**config)['dim']"),
    ):
        source = APART.replace("d_in, d_out, context_length, dropout, num_heads, qkv_bias=False", parameters)  # fmt: skip
        source = source.replace("super().__init__()", f"super().__init__(); d_out = {reads}")  # fmt: skip
        found = examine(source)
        assert found.verdict == "cannot tell"
        assert "--build" in found.message


def test_forward_that_takes_whatever_it_is_given(examine):
    source = APART.replace("def forward(self, x):", "def forward(self, *args, **kwargs):\n        (x,) = args")  # fmt: skip
    assert examine(source).verdict == "no fault"


ONE_BY_ONE = """\
import torch
from torch import nn
from torch.nn import functional as F


class MultiHeadAttention(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads):
        super().__init__()
        assert d_out % num_heads == 0
        self.h, self.p = num_heads, dropout
        self.q, self.k, self.v = (nn.Linear(d_in, d_out) for _ in range(3))
        self.out = nn.Linear(d_out, d_out)
        future = torch.ones(context_length, context_length).triu(1).bool()
        self.register_buffer("future", future)

    def forward(self, x):
        n, heads = x.shape[1], []
        q, k, v = (t(x).unflatten(-1, (self.h, -1)) for t in (self.q, self.k, self.v))
        for h in range(self.h):
            scores = q[:, :, h] @ k[:, :, h].mT / q.shape[-1] ** 0.5
            scores = scores.masked_fill(self.future[:n, :n], -torch.inf)
            weights = scores.softmax(-1)
            weights = F.dropout(weights, self.p, self.training)
            heads.append(weights @ v[:, :, h])
        return self.out(torch.stack(heads, dim=2).flatten(2))
"""


@pytest.mark.parametrize(
    ("old", "new", "right"),
    [
        (
            "dim=2).flatten(2)",
            "dim=-1).flatten(2)",
            "contexts.transpose(2, 3).reshape(b, num_tokens, num_heads * head_dim)",
        ),
        (
            "self.p, self.training",
            "self.p",
            "F.dropout(weights, self.p, self.training)",
        ),
    ],
)
def test_what_is_right_is_said_of_the_line_itself(examine, old, new, right):
    assert examine(ONE_BY_ONE).verdict == "no fault"
    found = examine(ONE_BY_ONE.replace(old, new))
    assert found.verdict == "fault"
    assert found.expected.startswith(right)


def test_what_a_mask_in_the_wrong_place_made(examine):
    found = examine(ONE_BY_ONE.replace("triu(1)", "triu(0)"))
    assert found.got == "-inf all along the first row, which the softmax makes nan"
    late = ONE_BY_ONE.replace("            scores = scores.masked", "            gone = scores.masked")  # fmt: skip
    late = late.replace(
        "scores.softmax(-1)", "scores.softmax(-1).masked_fill(gone.isinf(), 0)"
    )
    found = examine(late)
    assert found.statement.startswith("weights = scores.softmax(-1)")
    assert found.got.startswith("rows whose sums run from 0.")
    assert found.got.endswith(" to 1")
