"""Guessing shapes: whole sessions, scripted as through a pipe."""

import io
from typing import Any

import pytest
from program import PROGRAM, command

from steps.walk.command import parser, settings
from steps.walk.predict import predict


def session(numbers: list[int], answers: str, *flags: str) -> list[str]:
    """The lines of a session."""
    values, _ = settings(parser("test", "").parse_args(list(flags)))
    out = io.StringIO()
    assert predict(values, numbers, io.StringIO(answers), out) == 0
    return out.getvalue().splitlines()


def said(lines: list[str], name: str) -> list[str]:
    """What was said to the guesses of one tensor."""
    prompt, found, open_ = f"  shape of {name}? ", [], False
    for line in lines:
        if line.startswith(prompt):
            found.append("")
        open_ = line.startswith(prompt) or (
            open_ and line != "" and "  shape of " not in line
        )
        if open_ and not line.startswith(prompt):
            found[-1] = f"{found[-1]} {line.strip()}".strip()
    return found


def test_every_way_to_write_a_shape() -> None:
    answers = [
        "(1, 4, 6)",
        "1,4,6",
        "1 4 6",
        "B T H D",
        "[1, 4, 2, 3]",
        "torch.Size([1,4,2,3])",
    ]
    answers += ["B, H, T, D", "1 H 4 D", " ( 1 2 4 3 ) "]
    lines = session([15], "\n".join(answers) + "\n")
    assert lines[-1] == ("9 of 9 shapes right at the first try, 0 later, 0 not at all.")
    assert said(lines, "packed_queries") == [
        "Right: (1, 4, 6)  axes (B, T, H*D), computed"
    ]
    assert said(lines, "head_values") == [
        "Right: (1, 2, 4, 3)  axes (B, H, T, D), rearranged"
    ]


def test_merged_axes_are_products() -> None:
    lines = session([15], "B T H*D\nB T H * D\n1 4 2*3\nq\n")
    assert lines[-1].startswith("3 of 3 shapes right at the first try")


@pytest.mark.parametrize(
    ("guess", "axis", "reason"),
    [
        ("1 2 2 3", "Axis 1 (counted from 0) differs: you have 2.", "tokens"),
        ("1 4 3 2", "Axis 2 (counted from 0) differs: you have 3.", "heads"),
        ("1 4 6", "The number of axes differs: you have 3.", "24 elements"),
        (
            "1 4 2 4",
            "Axis 3 (counted from 0) differs: you have 4.",
            "Your shape has 32 elements",
        ),
    ],
)
def test_a_wrong_guess_is_told_which_axis_and_why(
    guess: str, axis: str, reason: str
) -> None:
    lines = session([15], f"1 4 6\n1 4 6\n1 4 6\n{guess}\nB T H D\nq\n")
    wrong, right = said(lines, "queries_by_token")
    assert wrong.startswith(axis)
    assert reason in wrong
    assert "(1, 4, 2, 3)" not in wrong
    assert "4, 2, 3" not in wrong
    assert right.startswith("Right: (1, 4, 2, 3)")
    assert lines[-3] == ("3 of 4 shapes right at the first try, 1 later, 0 not at all.")
    assert lines[-1] == "  view: queries_by_token"


def test_hint_and_skip_and_a_slip_of_the_pen() -> None:
    lines = session([16], "h\n1 2 4 four\n\n1 2 4 4\ns\n")
    hint, slip, empty, right = said(lines, "head_raw_scores")
    assert hint.startswith("A product of matrices works on the last two axes")
    assert "'four' is no size and no axis seen so far" in slip
    assert empty.startswith("Answer like 1,4,2,3 or B T H D")
    assert right.startswith("Right: (1, 2, 4, 4)")
    assert said(lines, "scaled") == ["It is (1, 2, 4, 4)  axes (B, H, T, T), computed"]
    assert lines[-4:-1] == [
        "0 of 2 shapes right at the first try, 1 later, 1 not at all.",
        "Operations to look at again:",
        "  matmul: head_raw_scores",
    ]
    assert lines[-1].endswith(": scaled")


@pytest.mark.parametrize("ending", ["", "q\n", "quit"])
def test_abandoned(ending: str) -> None:
    lines = session([15], "1 4 6\n" + ending)
    assert lines[-2] == ""
    assert lines[-1].startswith("1 of 1 shapes right at the first try")


def test_nothing_guessed() -> None:
    assert session([15], "")[-1] == "No shape was guessed."
    assert session([1], "")[-1] == "No shape was asked for."


def test_an_interrupt_ends_with_the_score() -> None:
    class Interrupted(io.StringIO):
        def readline(self, *_: Any) -> str:
            line = super().readline()
            if not line:
                raise KeyboardInterrupt
            return line

    values, _ = settings(parser("test", "").parse_args([]))
    out = io.StringIO()
    assert predict(values, [15], Interrupted("1 4 6\n"), out) == 0
    assert out.getvalue().splitlines()[-1].startswith("1 of 1 shapes right")


def test_the_whole_walk_answered_right(walk_document: dict[str, Any]) -> None:
    steps = walk_document["steps"]
    tensors = [t for step in steps for t in step["tensors"] if not t["link"]]
    answers = "".join(" ".join(map(str, tensor["shape"])) + "\n" for tensor in tensors)
    numbers = [step["number"] for step in walk_document["steps"]]
    lines = session(numbers, answers.replace("\n\n", "\n()\n"))
    asked = len(tensors)
    assert lines[-1] == (
        f"{asked} of {asked} shapes right at the first try, 0 later, 0 not at all."
    )


@pytest.mark.parametrize(
    "arguments", [[PROGRAM, "--predict"], ["-m", "steps.step15", "--predict"]]
)
def test_through_a_pipe(arguments: list[str]) -> None:
    ran = command(*arguments, given=b"s\ns\n")
    assert (ran.code, ran.err) == (0, "")
    assert "0 of 2 shapes right at the first try" in ran.out


def test_bytes_that_are_no_text_are_a_wrong_answer() -> None:
    ran = command("-m", "steps.step15", "--predict", given=b"\xff\n1 4 6\n")
    assert (ran.code, ran.err) == (0, "")
    assert "Write a shape" in ran.out or "is no size" in ran.out
    assert "1 of 1 shapes right" in ran.out


def test_other_sizes() -> None:
    lines = session(
        [15], "1 4 10\nB T 10\nB T H*D\nB T H D\nq\n", "--heads", "5", "--head-dim", "2"
    )
    assert lines[-1].startswith("4 of 4 shapes right")
