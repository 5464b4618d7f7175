"""The record as one strict JSON document: `gptversion.py --json`."""

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
    """Write these steps of the walk; 1 when a check failed.

    {"torch", "seed", "steps": [{"number", "title", "article", "code", "tensors",
    "wrong_turns", "notes", "checks"}]}. "code" is every statement, as it stands and
    with this run's sizes; non-finite numbers are the strings "-inf", "inf" and "nan".
    """
    steps, holds = [], True
    with Progress() as progress:
        for block in Walk(settings).blocks(numbers):
            progress(f"step {block.title.number} of {numbers[-1]}")
            steps.append(step(block))
            holds = holds and all(check.holds for check in block.checks)
    from steps.pytorch import torch

    whole = {"torch": torch.__version__, "seed": settings["seed"], "steps": steps}
    json.dump(whole, out, allow_nan=False)
    out.write("\n")
    return 0 if holds else 1


def step(block: Block) -> dict[str, Any]:
    return {
        "number": block.title.number,
        "title": block.title.title,
        "article": list(block.title.headings),
        "look": block.look,
        "code": [[code.text, code.here] for code in block.code],
        "tensors": [tensor(entry, block.numbers) for entry in block.entries],
        "wrong_turns": [
            {
                "says": turn.says,
                "why": turn.why,
                "code": [[code.text, code.here] for code in turn.code],
                "tensors": [tensor(entry, block.numbers) for entry in turn.entries],
                "statement": turn.statement,
                "error": turn.error,
            }
            for turn in block.wrong_turns
        ],
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


def tensor(entry: "Entry", numbers: bool = True) -> dict[str, Any]:
    """One result; a link of a chain, which has no name, goes by its expression."""
    small = numbers and entry.tensor.numel() <= MOST_VALUES
    return {
        "name": entry.name or entry.expression,
        "link": not entry.name,
        "statement": entry.statement,
        "shape": list(entry.shape),
        "axes": list(entry.axes),
        "stride": list(entry.stride),
        "offset": entry.offset,
        "contiguous": entry.contiguous,
        "origin": entry.origin,
        "shares_storage_with": entry.shares_storage_with,
        "values": strict(entry.numbers().tolist()) if small else None,
    }


def strict(value: Any) -> Any:
    """Nested lists in which non-finite numbers are strings."""
    if isinstance(value, list):
        return [strict(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
