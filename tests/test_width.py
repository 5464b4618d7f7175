"""No line is wider than 100 columns, as a terminal counts them; memory is bounded."""

import json
import sys

import pytest
from program import command, document, main
from wcwidth import wcswidth

TEXTS = {
    "article": "The river bank was muddy",
    "two tokens": "the cat",
    "long": "The old man and the sea and the river bank was muddy and so on " * 3,
    "one word": "x" * 300 + " y",
    "cjk": "河岸很泥泞 的 河岸很泥泞",
    "emoji": "🙂🙃 🎉🎉🎉 family",
    "two scripts": "שלום river נהר",
    "controls": "one\ntwo\tthree\x1b[31m four",
}
SIZES = [(4, 2, 3), (1, 1, 1), (5, 12, 2), (3, 1, 4), (2, 3, 40), (64, 4, 1)]


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        *zip(TEXTS, SIZES * 2, strict=False),
        *(("article", sizes) for sizes in SIZES[1:]),
    ],
)
def test_width(text: str, sizes: tuple[int, int, int]) -> None:
    d_in, heads, head_dim = sizes
    flags = ["--d-in", d_in, "--heads", heads, "--head-dim", head_dim]
    ran = main("--text", TEXTS[text], *map(str, flags))
    assert (ran.code, ran.err) == (0, "")
    assert [
        line for line in ran.out.split("\n") if not 0 <= wcswidth(line) <= 100
    ] == []
    assert [line for line in ran.out.split("\n") if line != line.rstrip()] == []


def test_help_and_list_are_narrow() -> None:
    assert all(len(line) <= 100 for line in main("--list").out.splitlines())
    assert all(len(line) <= 100 for line in main("--help").out.splitlines())


def test_one_head_and_one_token_have_nothing_to_copy() -> None:
    """What is said of the merge is what was measured at the sizes asked for."""
    for flags, contiguous in (
        (("--heads", "1"), True),
        (("--text", "the cat"), True),
        ((), False),
    ):
        step = document(*flags)["steps"][18]
        said = " ".join(note for note in step["notes"] if isinstance(note, str))
        assert ("nothing to copy" in said) == contiguous
        raised = [turn["error"] for turn in step["wrong_turns"] if turn["error"]]
        assert bool(raised) != contiguous


# Runs the program and then prints the most memory that the process had, in KiB.
MEASURED = """
import contextlib, io, json, resource, sys
from steps.command import main
out = io.StringIO()
try:
    with contextlib.redirect_stdout(out):
        main(sys.argv[1:])
except SystemExit as ended:
    code = ended.code
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
lines = out.getvalue().splitlines()
print(json.dumps({"code": code, "peak": peak, "lines": len(lines),
    "widest": max(map(len, lines)), "last": lines[-1]}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux only")
def test_a_thousand_tokens_and_twelve_heads_in_two_gigabytes() -> None:
    """At GPT-2's own d_in; at a smaller one no tensor is larger."""
    text = "the river " * 500
    flags = ["--text", text, "--heads", "12", "--head-dim", "64", "--d-in", "768"]
    measured = command("-c", MEASURED, *flags)
    assert measured.err == ""
    ran = json.loads(measured.out)
    assert ran["code"] == 0
    assert "held." in ran["last"]
    assert ran["lines"] < 10_000
    assert ran["widest"] <= 100
    assert ran["peak"] < 2 * 1024**2
