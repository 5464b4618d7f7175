"""What a step prints, in its order and measure: the point first, nothing twice, nothing
cut, and sentences that hold and read well at every size."""

import re
from collections.abc import Iterator

import pytest
from program import Ran, main, one_step
from wcwidth import wcswidth

from steps.walk import command
from steps.walk.order import Block, Walk, titles
from steps.walk.text import Text

NUMBERS = [title.number for title in titles()]
# Lines of a block at the default sizes and 100 columns, at most.
LONGEST = {14: 50, 15: 75, 16: 55, 17: 50, 18: 50, 19: 60, 20: 70, 21: 130, 22: 90}
LONGEST |= {23: 60, 24: 90}
FIRST_THIRTEEN, WHOLE, POINT = 430, 1150, 12

LETTERS = "a b c d e f g h"
SIXTY = "The river bank was muddy and the old stone bridge was wet " * 5
SETTINGS = [
    (),
    ("--text", "The river"),
    ("--heads", "1"),
    ("--heads", "1", "--head-dim", "1", "--d-in", "1"),
    ("--heads", "3", "--head-dim", "5", "--d-in", "8", "--follow", "river"),
    ("--heads", "12", "--head-dim", "64", "--d-in", "8"),
    ("--heads", "12", "--head-dim", "3", "--dropout", "0.1"),
    ("--dropout", "0", "--d-in", "6"),
    ("--dropout", "0.99", "--seed", "7"),
    ("--text", "The river", "--heads", "1", "--dropout", "0.1"),
    ("--text", "The river", "--heads", "3", "--dropout", "0.99", "--seed", "1"),
    ("--text", "the river the bank the river the", "--heads", "3", "--head-dim", "1"),
    ("--text", LETTERS, "--d-in", "1", "--head-dim", "64", "--seed", "9"),
    ("--text", LETTERS, "--heads", "12", "--dropout", "0", "--follow", "a"),
    ("--text", SIXTY, "--heads", "3", "--head-dim", "5"),
    ("--text", SIXTY, "--heads", "12", "--head-dim", "64", "--dropout", "0.1"),
    ("--text", SIXTY * 3, "--follow", "bridge", "--d-in", "8"),
    ("--text", SIXTY * 3, "--heads", "1", "--head-dim", "5", "--seed", "3"),
]


def blocks_of(*flags: str) -> list[Block]:
    values, _ = command.settings(command.parser("walk", "").parse_args(flags))
    return list(Walk(values).blocks(NUMBERS))


def named(flags: tuple[str, ...]) -> str:
    return " ".join(flags)[:60] or "default"


@pytest.fixture(scope="module", params=SETTINGS, ids=named)
def walked(request: pytest.FixtureRequest) -> tuple[list[Block], dict[int, str]]:
    """The blocks at some settings, and their text at 80, 100 and 120 columns."""
    found = blocks_of(*request.param)
    return found, {
        w: "\n".join(map(Text(width=w).block, found)) for w in (80, 100, 120)
    }


def lengths(whole: str) -> dict[int, int]:
    """Lines of each block of a whole run, without the empty one after it."""
    parts = re.split(r"(?m)^(?=Step \d+: )", whole)[1:]
    last = parts.pop().partition("\n\nThe way through")[0]
    found = [*(part.strip("\n") for part in parts), last]
    return {n: len(part.splitlines()) for n, part in zip(NUMBERS, found, strict=True)}


def test_lengths(whole_run: Ran) -> None:
    found = lengths(whole_run.out)
    first = sum(found[n] for n in range(1, 14))
    print(f"whole {len(whole_run.out.splitlines())}, steps 1-13 {first}, {found}")
    assert {n: count for n, count in found.items() if count > LONGEST.get(n, 99)} == {}
    assert first + 13 <= FIRST_THIRTEEN
    assert len(whole_run.out.splitlines()) <= WHOLE


def test_the_point_stands_first(walked: tuple[list[Block], dict[int, str]]) -> None:
    """Where to look is told within the first lines, before any table."""
    blocks, _ = walked
    for block in blocks:
        lines = Text().block(block).splitlines()
        at = next(i for i, line in enumerate(lines) if line.startswith("Look at: "))
        end = next(i for i in range(at, len(lines)) if not lines[i])
        assert end <= POINT, block.title
        assert not any(line.startswith("  statement") for line in lines[:at])


def test_every_check_holds(walked: tuple[list[Block], dict[int, str]]) -> None:
    failed = [(b.title.number, c) for b in walked[0] for c in b.checks if not c.holds]
    assert failed == []


def test_no_line_is_too_wide(walked: tuple[list[Block], dict[int, str]]) -> None:
    for width, text in walked[1].items():
        wide = [line for line in text.split("\n") if wcswidth(line) > width]
        assert wide == [], width


# A count of one before a plural, or a verb that does not agree with it.
PLURALS = (
    r"(?:weights|tokens|heads|numbers|rows|features|sentences|groups|scores|columns|"
    r"elements|outputs|results|pieces|contexts|matrices|positions|places|products)"
)
WRONG_GRAMMAR = [
    rf"(?<![\d.,x] )(?<![\d.,-])\b1 {PLURALS}\b",
    rf"\ball 1 \b|\ball (?:the )?one {PLURALS}",
    r"\b1 \w+ (?:are|have|were|hold|give|need) ",
    r"  +\.|\(\)|\bNone\b(?! of)|\bnan of\b",
    r"\ba (?:head|token|row)s\b|\bnumbers a (?:head|token)\b",
]


def sentences(block: Block) -> Iterator[str]:
    """Everything said of a step in words."""
    yield from [block.says, block.look]
    yield from (note.says for note in block.notes if isinstance(note.says, str))
    yield from (f"{turn.says}. {turn.why}" for turn in block.wrong_turns)
    yield from (check.claim for check in block.checks)


def test_grammar(walked: tuple[list[Block], dict[int, str]]) -> None:
    for block in walked[0]:
        for said in sentences(block):
            for wrong in WRONG_GRAMMAR:
                assert not re.search(wrong, said), (block.title.number, said)


def test_tokens_stand_in_quotes(walked: tuple[list[Block], dict[int, str]]) -> None:
    """The followed token is never a bare word in what is computed for this run."""
    for block in walked[0]:
        token = block.tokens[block.follow] if block.tokens else "bank"
        if token.lower() in {"a", "the", "was", "old", "and", "wet"}:
            continue  # words of the sentences themselves
        for said in [block.look, *(n.says for n in block.notes), *claims(block)]:
            if isinstance(said, str):
                bare = re.sub(r'"[^"]*"', "", said)
                assert not re.search(rf"\b{re.escape(token)}\b", bare), said


def claims(block: Block) -> list[str]:
    return [check.claim for check in block.checks]


def test_checks_mean_something_alone(
    walked: tuple[list[Block], dict[int, str]],
) -> None:
    for block in walked[0]:
        for check in block.checks:
            assert not re.match(r"(and|but|or|so|yet|it|they|that)\b", check.claim), (
                check
            )
            assert not check.claim.endswith("."), check


def test_every_head_is_in_every_table(
    walked: tuple[list[Block], dict[int, str]],
) -> None:
    """Under each statement that shows numbers by head, each head is named."""
    blocks, _ = walked
    shapes = [e for b in blocks for e in b.entries if e.axes[:2] == ("B", "H")]
    heads = {*range(1, shapes[0].shape[1] + 1)}
    seen = 0
    for block in blocks:
        if not block.numbers:
            continue
        for width in (80, 100, 120):
            for part in re.split(r"\n\n(?=\S)", Text(width=width).block(block)):
                titles = re.findall(r"(?m)^ +(?:head \d+[ |]*)+$", part)
                found = {int(h) for h in re.findall(r"\d+", " ".join(titles))}
                assert found in (set(), heads), part
                seen += bool(found)
    assert seen > 10


CELL = r"-?(?:\d+\.\d{4}|\d(?:\.\d+)?e[+-]\d+|inf)|nan"


def test_no_number_is_cut(walked: tuple[list[Block], dict[int, str]]) -> None:
    """In a row of numbers each has four decimals, and what is left out is dots."""
    for text in walked[1].values():
        for line in text.split("\n"):
            label, gap, row = line.partition("   ")
            cells = re.split(r"  +| ?\| ?", f"{gap}{row}".strip())
            numeric = [c for c in cells if re.fullmatch(r"-?[\d.]+(e[+-]?\d+)?", c)]
            if len(numeric) > 2 and any("." in c for c in numeric):
                odd = [c for c in numeric if not re.fullmatch(CELL, c)]
                assert odd == [] or "spread" in text or "e+" in line, line


def test_alike_is_decided_on_the_record() -> None:
    """Queries, keys and values are told once; queries of another shape are not."""
    out = one_step(15).out
    assert "\n    likewise packed_keys, packed_values\n" in out
    assert len(re.findall(r"(?m)^packed_\w+ = ", out)) == 1
    everything = one_step(15, "--all").out
    assert len(re.findall(r"(?m)^packed_\w+ = ", everything)) == 3
    assert "likewise" not in everything
    assert len(everything.splitlines()) > 1.5 * len(out.splitlines())


def test_all_shows_every_tensor_of_the_record() -> None:
    from program import document

    shown = main("--all").out
    for step in document()["steps"]:
        for tensor in step["tensors"]:
            assert tensor["name"].partition(".")[0] in shown


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [("15", [15]), ("14-16", [14, 15, 16]), ("16-16,14 , 20", [14, 16, 20])],
)
def test_steps_are_picked(wanted: str, numbers: list[int]) -> None:
    ran = main("--steps", wanted)
    assert (ran.code, ran.err) == (0, "")
    assert [int(n) for n in re.findall(r"(?m)^Step (\d+): ", ran.out)] == numbers
    assert re.search(r"\nAll \d+ checks held\.\n\Z", ran.out)


@pytest.mark.parametrize(
    "wanted", ["", "0", "999", "20-14", "14-", "-3", "a", "14-20-22", "1" * 60, "١٤"]
)
def test_other_steps_are_refused_in_a_line(wanted: str) -> None:
    ran = main(f"--steps={wanted}")
    assert (ran.code, ran.out) == (2, "")
    last = titles()[-1].number
    assert ran.err.startswith(f"gptversion.py: --steps: takes steps from 1 to {last},")
    assert ran.err.count("\n") == 1


def test_one_step_begins_with_what_it_needs() -> None:
    header, _, rest = one_step(15).out.partition("\n\n")
    assert rest.startswith("Step 15: ")
    first, x_batch, axes, *origins = header.split("\n")
    assert first.startswith('"The river bank was muddy", seed 123, torch ')
    assert x_batch.startswith("x_batch (1, 4, 4), axes (B, T, d_in): ")
    assert (
        axes
        == "Axes: B sentences, T tokens, H heads, D numbers per head, H*D the "
        + ("heads' numbers side by side")
    )
    assert " ".join(origins).startswith("computed: ")
    assert "rearranged: " in " ".join(origins)
    assert "drawn" not in header


def test_the_closing_map_names_every_tensor_of_the_article(whole_run: Ran) -> None:
    from program import document

    told = whole_run.out.partition("\nThe way through")[2]
    for step in document("--steps", "14-19")["steps"]:
        for tensor in step["tensors"]:
            if not tensor["link"]:
                name = tensor["name"].partition(".")[0]
                row = next(
                    line for line in told.split("\n") if re.search(rf"\b{name}\b", line)
                )
                assert f"({', '.join(map(str, tensor['shape']))})" in row
                assert row.split()[0] == str(step["number"])
