"""Repairs, proved by plain loops and PyTorch's own attention: see loops.py."""

from contextlib import contextmanager

import pytest
from apply_repair import applied
from cases import samples
from loops import fails

from steps.debugger.arguments import Sizes
from steps.debugger.build import build
from steps.debugger.case import make_case
from steps.debugger.examine import fitted
from steps.debugger.load import classes_in, contained, import_file, ordered
from steps.debugger.repair import find
from steps.debugger.ways import best_way


@contextmanager
def examined(folder, source: str):
    """The case of a source's attention class, run under the best way to call it."""
    file = folder / "my_attention.py"
    file.write_text(source)
    with contained(str(folder)):
        module, _ = import_file(file)
        cls = ordered(classes_in(module))[0]
        built = fitted(cls, build(cls, Sizes()))
        yield best_way(make_case(built.module, str(file), built.sizes, built, None))


def repairs(folder, source: str, **options):
    with examined(folder, source) as case:
        return find(case, **options)


# A fault of each kind that the grammar speaks of; some raise.
MENDED = [
    "packed_three_viewed_before_tokens",
    "packed_scores_with_values",
    "packed_divided_by_inverse",
    "packed_scale_of_the_whole_width",
    "packed_one_token_ahead_seen",
    "packed_softmax_over_heads",
    "packed_weights_turned",
    "packed_features_before_heads",
    "packed_projection_lost",
]


@pytest.mark.parametrize("name", MENDED)
def test_the_first_repair_mends_the_text_at_the_line_of_the_fault(name, tmp_path):
    sample = samples()[name]
    assert fails("eval", sample.source, sample.fields)
    best = repairs(tmp_path, sample.source)[0]
    assert best.line in sample.lines
    assert best.proof.apart < 1e-9
    assert not best.without < 1e-3  # it may be NaN
    assert not fails("eval", applied(sample.source, best.json), sample.fields)
