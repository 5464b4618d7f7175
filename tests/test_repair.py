"""Repairs, proved by plain loops (loops.py) and by PyTorch's own attention."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from apply_repair import applied
from cases import samples
from loops import fails

from steps.debugger.arguments import Sizes
from steps.debugger.build import build
from steps.debugger.case import Case, make_case
from steps.debugger.examine import fitted
from steps.debugger.load import classes_in, contained, import_file, ordered
from steps.debugger.program import functions_of
from steps.debugger.readings import Given, outputs
from steps.debugger.repair import RightOutput, find
from steps.debugger.ways import best_way
from steps.pytorch import nn, torch


@contextmanager
def examined(folder, source: str) -> Iterator[Case]:
    """The case of a source's attention class, run under the best way to call it."""
    file = folder / "my_attention.py"
    file.write_text(source)
    with contained(str(folder)):
        module, _ = import_file(file)
        cls = ordered(classes_in(module))[0]
        built = fitted(cls, build(cls, Sizes()))
        yield best_way(make_case(built.module, str(file), built.sizes, built, None))


# A fault of each kind that the grammar speaks of; some of them raise.
MENDED = [
    "packed_three_viewed_before_tokens",
    "packed_scores_with_values",
    "packed_one_token_ahead_seen",
    "packed_softmax_over_heads",
    "packed_features_before_heads",
    "packed_projection_lost",
]


@pytest.mark.parametrize("name", MENDED)
def test_the_first_repair_mends_the_text_at_the_line_of_the_fault(name, tmp_path):
    sample = samples()[name]
    assert fails("eval", sample.source, sample.fields)
    with examined(tmp_path, sample.source) as case:
        best = find(case)[0]
    assert best.line in sample.lines
    assert best.proof.apart < 1e-9
    assert not best.without < 1e-3  # it may be NaN
    assert not fails("eval", applied(sample.source, best.json), sample.fields)


def mutated(name: str, old: str, new: str) -> tuple[str, dict[str, str], int]:
    """A right module with one place changed: (text, fields, line)."""
    right = samples()[name]
    assert right.source.count(old) == 1
    line = right.source[: right.source.index(old)].count("\n") + 1
    return right.source.replace(old, new), right.fields, line


def test_dropout_is_put_back_where_it_acts_on_the_weights(tmp_path):
    call = "self.drop(w)"
    source, fields, line = mutated("packed", call, "w")
    assert fails("train_dropout", source, fields)
    with examined(tmp_path, source) as case:
        best = find(case, accept=RightOutput(case, train=True))[0]
    assert best.line == line
    assert not fails("train_dropout", applied(source, best.json), fields)


def test_nothing_of_the_module_is_left_changed(tmp_path):
    source = samples()["packed_scores_with_values"].source
    with examined(tmp_path, source) as case:
        names = sys.modules[type(case.module).__module__]
        before = {f: f.__code__ for f in functions_of(vars(names))}
        state = {n: t.clone() for n, t in case.module.state_dict().items()}
        out = case.forward(case.module, case.x)
        assert find(case)
        assert {f: f.__code__ for f in functions_of(vars(names))} == before
        assert all(
            torch.equal(t, state[n]) for n, t in case.module.state_dict().items()
        )
        assert torch.equal(case.forward(case.module, case.x), out)


@pytest.mark.parametrize("causal", [False, True])
def test_a_reading_of_the_weights_is_what_pytorch_computes(causal):
    torch.manual_seed(3)
    other = nn.MultiheadAttention(12, 3, batch_first=True).double().eval()
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1) if causal else None
    with torch.no_grad():
        out, _ = other(x, x, x, attn_mask=mask)
    weights = dict(other.named_parameters())
    found = outputs(Given(x), weights, [3], [False, True]).find(out)
    usual = [reading for reading in found if reading.usual]
    assert [(r.layout, r.H, r.causal) for r in usual] == [("3HD", 3, causal)]
    assert not outputs(Given(x), weights, [3], [not causal]).find(out)
    assert not outputs(Given(x), weights, [2], [causal]).find(out)


def test_what_cannot_be_mended_has_no_repair(tmp_path):
    source = (
        samples()["packed"]
        .source.replace(
            "y = torch.einsum", "v = v.sort(-1)[0].cumsum(-2)\n        y = torch.einsum"
        )
        .replace("s = s * self.scale", "s = (s * 3).sin()")
    )
    with examined(tmp_path, source) as case:
        assert find(case, budget=0.5) == []


@pytest.mark.parametrize(
    "guarded",
    [
        "if x.shape[1] > 10**5: os.remove(VICTIM)",
        "import os; y = os.remove(VICTIM) if x.shape[1] > 10**5 else None",
        "self.told = open(VICTIM).close() if x.dim() == 3 else open(VICTIM, 'w')",
    ],
)
def test_no_change_is_run_where_the_file_reaches_beyond_numbers(tmp_path, guarded):
    victim = tmp_path / "victim.txt"
    victim.write_text("here")
    wrong = samples()["packed_scores_with_values"].source.splitlines()
    at = next(n for n, line in enumerate(wrong) if "def forward" in line) + 1
    wrong.insert(at, f"        {guarded}")
    source = "\n".join(["import os", f"VICTIM = {str(victim)!r}", *wrong]) + "\n"
    with examined(tmp_path, source) as case:
        assert find(case) == []
        assert any("change that mends" in said for said in case.not_tried)
    assert victim.read_text() == "here"


def test_a_change_that_makes_a_loop_endless_ends(tmp_path):
    wrong = samples()["packed_scores_with_values"].source.splitlines()
    at = next(n for n, line in enumerate(wrong) if "def forward" in line) + 1
    loop = ["        i = 0", "        while i < 3:", "            i += 1"]
    with examined(
        tmp_path, "\n".join([*wrong[:at], *loop, *wrong[at:]]) + "\n"
    ) as case:
        assert find(case)
