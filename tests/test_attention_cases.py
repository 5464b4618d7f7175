"""The modules in attention_cases/, and what the debugger says of them.

Nothing here trusts a sample's name or its comments. Each right module must agree with
plain Python loops over its own weights, in every check of loops.py; each faulty one
must fail the checks that it names. Only then is the debugger asked, headers emptied.
"""

import zlib

import pytest
from apply_repair import applied
from cases import OTHER_SETTINGS, faulty_samples, patched, right_samples
from examined import examined
from loops import fails, prove

from steps.walk.text import WIDTH

pytestmark = pytest.mark.usefixtures("one_thread")

FAMILIES = {
    "projection", "split", "nn.MultiheadAttention", "scores", "scale", "mask",
    "softmax", "dropout", "values", "merge", "output", "constructor", "training",
    "device", "precision", "positions",
}  # fmt: skip


def each(samples, beyond=()):
    """A test for each sample; of those in `beyond` it is known to fail, and why."""
    return pytest.mark.parametrize(
        "sample",
        [
            pytest.param(
                sample,
                id=sample.name,
                marks=[pytest.mark.xfail(reason=beyond[sample.name], strict=True)]
                if sample.name in beyond
                else [],
            )
            for sample in samples
        ],
    )


@each(right_samples())
def test_a_right_module_agrees_with_plain_loops(sample):
    assert sample.fields["good"]
    prove(sample.source, sample.fields)


@each(faulty_samples())
def test_a_fault_shows_in_the_checks_it_names(sample):
    family, _, told = sample.fields["bug"].partition(": ")
    assert family in FAMILIES
    assert told
    for name in sample.fails:
        assert fails(name, sample.source, sample.fields), name


def test_every_family_has_several_faults():
    families = [sample.fields["bug"].split(":")[0] for sample in faulty_samples()]
    assert {family for family in families if families.count(family) > 1} == FAMILIES


def test_a_patch_goes_where_its_lines_are():
    source = "a\nb\na\nc\n"
    assert patched(source, ["-c", "+d"]) == ("a\nb\na\nd\n", 4)
    assert patched(source, [" b", "-a"]) == ("a\nb\nc\n", 3)
    twice = ["-c", "+d", "@@", "-b", "+e", "+f"]
    assert patched(source, twice) == ("a\ne\nf\na\nd\n", 5)
    for wrong in (["-a", "+d"], ["-e"], ["+d"]):
        with pytest.raises(ValueError, match="times in the module"):
            patched(source, wrong)


@each(right_samples())
def test_the_debugger_clears_a_right_module(sample):
    answer = examined(sample.source)
    allowed = {"no fault"}
    if sample.fields.get("scope") == "outside":
        allowed.add("cannot tell")
    assert answer["verdict"] in allowed, answer["message"]
    assert {risk["line"] for risk in answer.get("risks", ())} <= sample.risk_lines


UNPROVED = "no change that was tried mends it, and the run alone is no proof of a fault"
# What the debugger does not find yet, and why; strict, so that finding one is noticed.
BEYOND = {
    "block_mask_from_zero": "slices of a range of tokens hold no stage: a line off",
    "dropout_default_rate": "a rate that is never read may be meant so",
    "heads_and_context_confused": UNPROVED,
    "mha_mask_as_padding": UNPROVED,
    "sigmoid_for_softmax": UNPROVED,
    "summed_last_head_only": UNPROVED,
    "summed_one_head_short": UNPROVED,
    "summed_values_of_the_first_head": UNPROVED,
    "tensordot_mask_inverted": UNPROVED,
    "notebook_width_not_checked": "rounding head_dim down is allowed elsewhere",
    "vmapped_over_tokens": "inside torch.vmap only the result is seen",
}


@each(faulty_samples(), BEYOND)
def test_the_debugger_names_the_line_of_a_fault(sample):
    # The search for a repair takes a second: where the line is told without it, that is
    # enough for four of five.
    quick = bool(zlib.crc32(sample.name.encode()) % 5)
    answer = examined(sample.source, quick=quick)
    if quick and answer["line"] not in sample.lines:
        answer = examined(sample.source)
    told = {answer["line"]} if answer["verdict"] == "fault" else set()
    if OTHER_SETTINGS.issuperset(sample.fails):
        told |= {risk["line"] for risk in answer.get("risks", ())}
    if answer["repair"] and not told & sample.lines:
        # Another line mends it as well: then it is loops that must find it mended.
        prove(applied(sample.source, answer["repair"]), sample.fields)
    else:
        assert told & sample.lines, answer["message"]
        assert sample.fields.get("says", "") in " ".join(answer["report"].split())
    assert answer["report"].isascii()
    assert max(map(len, answer["report"].splitlines())) <= WIDTH
