"""The record as one strict JSON document: `gptversion.py --json`.

The document is {"torch", "seed", "steps"}, and each step

    "number", "title", "article"  its place, what it is called, the article's headings
    "look"         what to hold in view
    "code"         every statement: [as it stands, with this run's sizes]
    "tensors"      see below                "wrong_turns"  each with its own
    "notes"        sentences, tables {"header", "rows"} and drawings {"drawing": lines}
    "notes_about"  for each of them the name of the tensor that it explains, or ""
    "checks"       {"claim", "holds", "detail"}

A tensor, one result of one call in the order of the run, here and on the page alike:

    "name"         what the source calls it; a link of a chain goes by its expression
    "link"         whether it is such a link, without a name of its own
    "statement"    the whole statement that it is made by
    "function"     torch's name of the call, such as "view"
    "shape", "stride", "offset"   in elements; "contiguous" whether in reading order
    "axes"         a name for each axis as the source has it: "B", "num_heads", "H*D";
                   merged axes have a star, "T?" no longer holds tokens in order
    "letters"      the same by the walk's letters, where a class has names of its own
    "origin"       where the numbers come from, measured: see the recorder
    "shares_storage_with"   the tensor whose storage it is, or null
    "holds"        "weights", "scores" or "mask" between tokens, or "": see meaning.py
    "values"       nested lists, null where there are too many; -inf, inf and nan are
                   strings. The page has "numbers" instead: see gather.py.
"""

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

from steps.layout import Drawing, Table
from steps.progress import Progress
from steps.walk.order import Block, Walk

if TYPE_CHECKING:
    from steps.walk.recorder import Entry

MOST_VALUES = 1_000_000  # of one tensor; a larger one's "values" are null


def write(settings: Mapping[str, Any], out: TextIO, numbers: list[int]) -> int:
    """Write these steps of the walk; 1 when a check failed."""
    from steps.walk.meaning import Meaning
    from steps.walk.sheets import by_head

    steps, holds, meaning = [], True, Meaning()

    def tensors(entries: list["Entry"], block: Block) -> list[dict[str, Any]]:
        heads = by_head(block.entries)
        return [
            tensor(entry, meaning.of(entry), heads)
            | {"values": values(entry) if block.numbers else None}
            for entry in entries
        ]

    def made(block: Block) -> dict[str, Any]:
        return {
            **words(block),
            "code": [[code.text, code.here] for code in block.code],
            "tensors": tensors(block.entries, block),
            "wrong_turns": [
                {
                    "says": turn.says,
                    "why": turn.why,
                    "code": [[code.text, code.here] for code in turn.code],
                    "tensors": tensors(turn.entries, block),
                    "statement": turn.statement,
                    "error": turn.error,
                }
                for turn in block.wrong_turns
            ],
        }

    with Progress() as progress:
        for block in Walk(settings, keep_calls=True).blocks(numbers):
            progress(f"step {block.title.number} of {numbers[-1]}")
            steps.append(made(block))
            holds = holds and all(check.holds for check in block.checks)
    from steps.pytorch import torch

    whole = {"torch": torch.__version__, "seed": settings["seed"], "steps": steps}
    json.dump(whole, out, allow_nan=False)
    out.write("\n")
    return 0 if holds else 1


def words(block: Block) -> dict[str, Any]:
    """What a step says, without its statements and tensors."""
    return {
        "number": block.title.number,
        "title": block.title.title,
        "article": list(block.title.headings),
        "look": block.look,
        "notes": [
            {"header": note.says.header, "rows": note.says.rows}
            if isinstance(note.says, Table)
            else {"drawing": note.says.lines}
            if isinstance(note.says, Drawing)
            else note.says
            for note in block.notes
        ],
        "notes_about": [note.about for note in block.notes],
        "checks": [
            {"claim": check.claim, "holds": check.holds, "detail": check.detail}
            for check in block.checks
        ],
    }


def tensor(entry: "Entry", holds: str, heads: set[int]) -> dict[str, Any]:
    """One result, without its numbers.

    holds: from a `Meaning`. heads: from `by_head`, for "letters".
    """
    from steps.walk.sheets import walk_axes

    return {
        "name": entry.name or entry.expression,
        "link": not entry.name,
        "statement": entry.statement,
        "function": entry.function.strip("_"),
        "shape": list(entry.shape),
        "axes": list(entry.axes),
        "letters": walk_axes(entry, heads),
        "stride": list(entry.stride),
        "offset": entry.offset,
        "contiguous": entry.contiguous,
        "origin": entry.origin,
        "shares_storage_with": entry.shares_storage_with,
        "holds": holds,
    }


def values(entry: "Entry") -> Any:
    """The numbers as nested lists, None where there are too many."""
    small = entry.tensor.numel() <= MOST_VALUES
    return strict(entry.numbers().tolist()) if small else None


def strict(value: Any) -> Any:
    """Nested lists in which non-finite numbers are strings."""
    if isinstance(value, list):
        return [strict(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
