"""The walk as a reader sees it: the golden transcript, single steps, no noise."""

import importlib
import re
import sys
from pathlib import Path

import pytest
from program import PROGRAM, ROOT, Ran, as_main, command, document, main, one_step

from steps.walk.order import titles

GOLDEN = ROOT / "tests" / "golden"
NUMBERS = [title.number for title in titles()]
VALUE = re.compile(r" *-?\d+\.\d{4}(?!\d)")  # with the spaces that align it

# Python 3.10 gives no columns, so that links of a chain have no text of their own.
by_column = pytest.mark.skipif(sys.version_info < (3, 11), reason="no columns")

OTHER_SIZES = ("--d-in", "5", "--heads", "3", "--head-dim", "2", "--dropout", "0.25")
OTHER_TEXT = ("--text", "We saw the old dog and the cat", "--follow", "old")


def blocks(out: str) -> dict[int, str]:
    """The blocks of a whole run, each with the empty line after it."""
    out = out.partition("The way through, tensor by tensor\n")[0]
    parts = re.split(r"(?m)^Step (\d+): ", out)
    return {
        int(number): f"Step {number}: {text}"
        for number, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def from_heading(out: str) -> str:
    """What one step alone prints, without the lines that it needs alone."""
    before, heading, block = out.partition("\n\nStep ")
    assert heading
    assert len(before.splitlines()) <= 8
    return f"Step {block}"


@by_column
@pytest.mark.parametrize(
    ("flags", "name"), [((), "walk.txt"), (("--all",), "walk_all.txt")]
)
def test_golden_transcript(flags: tuple[str, ...], name: str, whole_run: Ran) -> None:
    """Text exactly, values to 1e-4; `python tests/golden/make.py` writes it anew."""
    golden = (GOLDEN / name).read_text(encoding="utf-8")
    out = main(*flags).out if flags else whole_run.out
    assert VALUE.sub(" #", out) == VALUE.sub(" #", golden)
    values = [float(value) for value in VALUE.findall(out)]
    expected = [float(value) for value in VALUE.findall(golden)]
    assert values == pytest.approx(expected, abs=1e-4, rel=0)


@by_column
def test_golden_tensors(walk_document: dict) -> None:
    """Names, shapes, axes, strides, origins and shared storage, all exactly."""
    sys.path.insert(0, str(GOLDEN))
    lines = importlib.import_module("make").tensors(walk_document)
    assert lines == (GOLDEN / "tensors.txt").read_text(encoding="utf-8").splitlines()


def test_whole_run_is_quiet_and_every_check_holds(whole_run: Ran) -> None:
    assert (whole_run.code, whole_run.err) == (0, "")
    claims = len(re.findall(r"(?m)^  holds  ", whole_run.out))
    assert whole_run.out.endswith(f"\n\nAll {claims} checks held.\n")
    assert "\x1b" not in whole_run.out
    assert list(blocks(whole_run.out)) == NUMBERS


@pytest.mark.parametrize("number", NUMBERS)
def test_one_step_is_its_block_of_the_whole_run(number: int, whole_run: Ran) -> None:
    alone = as_main(number)
    assert (alone.code, alone.err) == (0, "")
    assert from_heading(alone.out) + "\n" == blocks(whole_run.out)[number]


@pytest.mark.parametrize(
    "flags", [OTHER_SIZES, OTHER_TEXT, (*OTHER_SIZES, *OTHER_TEXT)]
)
def test_one_step_is_its_block_with_other_flags(flags: tuple[str, ...]) -> None:
    whole = main(*flags)
    assert (whole.code, whole.err) == (0, "")
    for number, block in blocks(whole.out).items():
        alone = one_step(number, *flags)
        assert alone.code == 0
        assert block == from_heading(alone.out) + "\n"


@pytest.mark.parametrize("number", [1, 15])
def test_a_step_file_runs_by_its_path(number: int, tmp_path: Path) -> None:
    """As an editor's Run button does it, from whatever folder."""
    by_path = command(str(ROOT / "steps" / f"step{number}.py"), cwd=tmp_path)
    assert by_path == command("-m", f"steps.step{number}")


@pytest.mark.parametrize(
    "environment",
    [
        {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "1"},
        {"OMP_NUM_THREADS": "2", "PYTHONHASHSEED": "2"},
        {"LC_ALL": "C", "COLUMNS": "40", "PYTHONHASHSEED": "3"},
    ],
)
def test_the_same_output_everywhere(
    environment: dict[str, str], whole_run: Ran, tmp_path: Path
) -> None:
    assert command(PROGRAM, cwd=tmp_path, **environment) == whole_run


def test_the_caller_is_left_as_found() -> None:
    import torch

    torch.manual_seed(7)
    torch.set_default_dtype(torch.float64)
    try:
        before = torch.get_rng_state()
        threads, grad = torch.get_num_threads(), torch.is_grad_enabled()
        main()
        assert torch.equal(torch.get_rng_state(), before)
        assert torch.get_default_dtype() == torch.float64
        assert (torch.get_num_threads(), torch.is_grad_enabled()) == (threads, grad)
    finally:
        torch.set_default_dtype(torch.float32)


def test_another_seed_is_another_walk(walk_document: dict) -> None:
    def weights(walk: dict) -> dict[str, list]:
        return {
            tensor["name"]: tensor["values"]
            for step in walk["steps"][:20]  # step 24 has weights of its own
            for tensor in step["tensors"]
            if tensor["name"].endswith(".weight")
        }

    ours, theirs = weights(walk_document), weights(document("--seed", "124"))
    assert ours.keys() == theirs.keys()
    assert all(ours[name] != theirs[name] for name in ours)


def test_a_failed_check_says_what_differed_and_exits_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from steps.claims import step2
    from steps.compare import equal

    def checks(input_ids):
        yield "ids are what they are not", equal(input_ids, [0])

    monkeypatch.setattr(step2, "checks", checks)
    whole = main()
    assert whole.code == 1
    assert "  FAILS  ids are what they are not\n         got [464, 7850" in whole.out
    assert re.search(r"\n\d+ of \d+ checks held; 1 did not\.\n\Z", whole.out)
    assert main("--json").code == 1
    assert one_step(2).code == 1
