# ruff: noqa: E501 - lines of a reader's own file
"""The debugger on files that misbehave, on instances, and as a command.

Modules with a fault, and right ones in many styles, are in attention_cases/.
"""

import json
import os
import random
import sys
import threading
import time

import pytest
from cases import line_of, samples
from program import ROOT, command

from steps.attention import CausalAttention, MultiHeadAttention, SelfAttention_v2
from steps.debugger import diagnose
from steps.debugger.command import check, split_target
from steps.debugger.examine import examine_file
from steps.pytorch import nn, torch

# Two right modules to break here and to hold in other ways.
APART = samples()["apart"].source
PACKED = samples()["packed"].source


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


@pytest.mark.parametrize("style", [APART, PACKED])
def test_the_line_is_known_without_columns(examine, monkeypatch, style):
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
    assert (found.verdict, found.line) == ("fault", line_of(style, "softmax("))


def test_the_command_and_its_exit_codes(tmp_path):
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(PACKED)
    wrong.write_text(PACKED.replace("s * self.scale", "s"))

    def run(*arguments):
        return command("-m", "steps.step23", *map(str, arguments))

    ran = run(right)
    assert (ran.code, ran.err) == (0, "")
    assert "no fault" in ran.out
    ran = run("--quiet", "--json", right, f"{wrong}:Attention")
    assert (ran.code, ran.err) == (1, "")
    rows = [json.loads(line) for line in ran.out.splitlines()]
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
    assert run(tmp_path / "none.py").code == 2
    ran = run("--timeout", "soon", right)
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1


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
    assert (found.verdict, found.kind) == ("fault", "softmax")
    assert found.line == line_of(APART, "softmax(")


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


def test_a_mask_that_was_not_wanted_is_said(examine):
    found = examine(APART, causal=False)
    assert (found.verdict, found.kind) == ("fault", "mask")
    assert "every token may look at every other" in found.message
    assert "masked_fill" in found.statement


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
