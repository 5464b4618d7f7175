"""A verdict is a proof: nothing is cleared whose output was not compared."""

import json

import pytest
import torch
from apply_repair import applied
from examined import examined
from program import main
from torch import nn

ATTENTION = """
import torch
from torch import nn
{before}

class MultiHeadAttention(nn.Module):
    def __init__(self, d_in, d_out, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.query = nn.Linear(d_in, d_out)
        self.key = nn.Linear(d_in, d_out)
        self.value = nn.Linear(d_in, d_out)
        self.out_proj = nn.Linear(d_out, d_out)
        {made}

    def split(self, projected):
        b, t, _ = projected.shape
        return projected.view(b, t, self.num_heads, -1).transpose(1, 2)

    def forward(self, x):
        layers = self.query, self.key, self.value
        q, k, v = (self.split(layer(x)) for layer in layers)
        weights = torch.softmax(q @ k.transpose(2, 3) / q.shape[-1] ** 0.5, dim=-1)
        out = self.out_proj((weights @ v).transpose(1, 2).flatten(2))
        return {returned}
"""

SCRIPTED = """
@torch.jit.script
def finish(out: torch.Tensor) -> torch.Tensor:
    return out * 2
"""

AFTER = {
    "times": {"returned": "out * 3"},
    "plus": {"returned": "out + 1"},
    "relu": {"returned": "out.relu()"},
    "cumsum": {"returned": "out.cumsum(1)"},
    "flip": {"returned": "out.flip(1)"},
    "in_place": {"returned": "out.mul_(2)"},
    "script": {"returned": "finish(out)", "before": SCRIPTED},
    "hook": {
        "returned": "out",
        "made": "self.register_forward_hook(lambda module, given, made: made * 2)",
    },
}
SAME = {
    "nothing": "out",
    "once": "out * 1.0",
    "moved": "out.transpose(0, 1).transpose(0, 1)",
    "pair": "(out, weights)",
}


def source(returned: str, before: str = "", made: str = "") -> str:
    return ATTENTION.format(returned=returned, before=before, made=made)


def plain(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Head by head, token by token, from the module's own layers."""
    H = module.num_heads
    made = [layer(x) for layer in (module.query, module.key, module.value)]
    D = made[0].shape[-1] // H
    joined = torch.zeros(*x.shape[:2], H * D)
    for b in range(x.shape[0]):
        for h in range(H):
            q, k, v = (each[b, :, h * D : (h + 1) * D] for each in made)
            for t in range(x.shape[1]):
                scores = torch.stack([q[t] @ key for key in k]) / D**0.5
                joined[b, t, h * D : (h + 1) * D] = torch.softmax(scores, 0) @ v
    return module.out_proj(joined)


def first_output(text: str) -> tuple[torch.Tensor, torch.Tensor]:
    """(what the module returns, what its layers make of x in plain loops)."""
    names: dict = {"__name__": "written"}
    exec(compile(text.replace("@torch.jit.script", ""), "written.py", "exec"), names)
    torch.manual_seed(0)
    module = names["MultiHeadAttention"](5, 6, 3)
    x = torch.randn(2, 4, 5)
    with torch.no_grad():
        made = module(x)
        return (made[0] if isinstance(made, tuple) else made), plain(module, x)


@pytest.mark.parametrize("name", AFTER)
def test_what_changes_the_output_after_it_was_right_is_a_fault(name):
    text = source(**AFTER[name])
    made, right = first_output(text)
    assert not torch.allclose(made, right, atol=1e-4)
    answer = examined(text)
    assert answer["verdict"] == "fault"
    assert answer["proof"]


@pytest.mark.parametrize("name", SAME)
def test_what_leaves_the_output_as_it_was_is_none(name):
    text = source(SAME[name])
    made, right = first_output(text)
    assert torch.allclose(made, right, atol=1e-5)
    answer = examined(text)
    assert answer["verdict"] == "no fault"
    assert "heads computed separately" in answer["proof"]


GATED = source("out").replace("forward(self, x)", "forward(self, x, gate)")
GATED = GATED.replace("return out", "return out * gate.mean() / gate.mean()")


def checked(tmp_path, text, *flags):
    file = tmp_path / "my_attention.py"
    file.write_text(text)
    return main("--quiet", "--check", str(file), *flags)


def test_call_says_what_forward_is_given(tmp_path):
    ran = checked(tmp_path, GATED, "--call", "x, torch.ones(B, T, x.shape[-1])")
    assert ran.code == 0, ran.out
    assert "called with x, torch.ones(B, T, x.shape[-1])" in " ".join(ran.out.split())
    for call, said in (("x, (", "--call: 'x, ('"), ("x, y", "name 'y' is not defined")):
        ran = checked(tmp_path, GATED, "--call", call)
        assert (ran.code, ran.err) == (2, "")
        assert said in " ".join(ran.out.split())


def test_quick_looks_for_no_repair(tmp_path):
    wrong = source("out").replace("dim=-1", "dim=-2")
    told = json.loads(checked(tmp_path, wrong, "--json").out)
    quick = json.loads(checked(tmp_path, wrong, "--json", "--quick").out)
    assert (told["verdict"], quick["verdict"]) == ("fault", "fault")
    assert told["line"] == quick["line"]
    assert quick["repair"] is None
    mended = applied(wrong, told["repair"])
    assert torch.allclose(*first_output(mended), atol=1e-5)


def test_a_risk_is_no_fault_unless_strict(tmp_path):
    masked = source("out").replace(
        "weights = torch.softmax(q @ k.transpose(2, 3) / q.shape[-1] ** 0.5, dim=-1)",
        "scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5\n"
        "        later = torch.ones(x.shape[1], x.shape[1], device=x.device).triu(1)\n"
        "        weights = scores.masked_fill(later.bool(), -1e9).softmax(-1)",
    )
    told = json.loads(checked(tmp_path, masked, "--json").out)
    line = masked.splitlines().index(next(x for x in masked.splitlines() if "1e9" in x))
    assert told["verdict"] == "no fault"
    assert [(r["line"], r["setting"]) for r in told["risks"]] == [(line + 1, "half")]
    assert checked(tmp_path, masked).code == 0
    assert checked(tmp_path, masked, "--strict").code == 1
