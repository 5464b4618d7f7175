"""The debugger on mutants: one of every right module in attention_cases/.

`python tests/mutants.py` tries more of them, and prints each that is not found.
"""

import ast

import pytest
from cases import FOLDER, samples
from mutants import ask, changes, is_wrong, mutants

pytestmark = pytest.mark.usefixtures("one_thread")

EACH = 1
CLEARED = 0  # of them may be called right
FOUND = 0.5  # are named at the right line, or mended by a repair that is printed

RIGHT = [samples()[path.stem] for path in sorted(FOLDER.glob("*.py"))]


def test_mutants_are_named_and_none_is_cleared():
    told = [ask(mutant) for right in RIGHT for mutant in mutants(right, EACH)]
    assert len(told) == EACH * len(RIGHT)
    cleared = [str(one) for one in told if one.cleared]
    assert len(cleared) <= CLEARED, "\n".join(cleared)
    missed = [str(one) for one in told if not one.found]
    assert len(missed) <= (1 - FOUND) * len(told), "\n".join(missed)


def test_a_mutant_is_one_line_away_and_loops_find_it_wrong():
    right = samples()["apart"]
    made = mutants(right, 12)
    assert len({mutant.change.kind for mutant in made}) == 12
    for mutant in made:
        pairs = zip(right.source.splitlines(), mutant.source.splitlines(), strict=True)
        changed = [n for n, (one, two) in enumerate(pairs, 1) if one != two]
        assert changed == [mutant.change.line]
        assert is_wrong(mutant.source, right.fields)
    assert made == mutants(right, 12)
    assert not is_wrong(right.source, right.fields)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("softmax(x, dim=-1)", {"axis"}),
        ("x.view(a, b)", {"sizes"}),
        ("triu(x, diagonal=1)", {"diagonal"}),
        ("einsum('ab,b', x)", {"letters"}),
        ("x.mT", {"no transpose"}),
        ("q @ k", {"product turned"}),
        ("~mask", {"not"}),
        ("f(causal=True)", {"flag"}),
        ("x[:n, 0]", {"slice", "index"}),
        ("self.drop(w)", {"no dropout"}),
    ],
)
def test_the_kinds_of_change(text, kinds):
    tree = ast.parse(f"def f():\n    {text}\n")
    assert {change.kind for change in changes(tree)} == kinds
