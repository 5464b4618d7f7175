"""Plain text in columns: lines that fit, tables, drawings, numbers to four decimals.

What is said of a step and what the debugger reports are both laid out with this.
"""

import re
import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

WIDTH = 100  # columns, where the reader's terminal does not say
ROWS = 12  # more rows of a table than this are summarised


@dataclass(frozen=True)
class Table:
    """Rows for the reader, under a header; a note that is not a sentence."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Drawing:
    """Lines for the reader as they stand, a diagram in text; at most 78 columns."""

    lines: tuple[str, ...]


def wrap(
    text: str, first: str = "", rest: str | None = None, width: int = WIDTH
) -> list[str]:
    """The text in lines of at most `width` columns.

    A shape, (1, 4, 6), and a product, 2 x 3, stay whole.

    first, rest: what the first line and the later ones begin with.
    """
    text = re.sub(r"(?<=\d), (?=\d)", ",\0", text)
    text = re.sub(r"(?<=\d) x (?=-?\d)", "\0x\0", text)
    # textwrap counts characters: this one makes up for the second column of a wide one
    filled = text
    if not text.isascii():
        filled = "".join("\1" * (columns(c) - 1) + c for c in text)
    lines = textwrap.wrap(
        filled,
        width if filled == text else width - 1,
        initial_indent=first,
        subsequent_indent=first if rest is None else rest,
        break_on_hyphens=False,
    )
    return [line.replace("\1", "").replace("\0", " ") for line in lines]


def table(note: Table, width: int = WIDTH, most: int = ROWS) -> list[str]:
    """A table under its header, indented by two; the middle of very many rows left out.

    most: rows that are shown.
    """
    rows = [note.header, *note.rows]
    rows = [
        rows[i] if i is not None else ("...",) * len(rows[0])
        for i in some(len(rows), most + 1)
    ]
    wide = [max(columns(row[c]) for row in rows) for c in range(len(note.header))]
    while (over := sum(wide) + 2 * len(wide) - width) > 0:
        widest = wide.index(max(wide))
        wide[widest] = max(wide[widest] - over, wide[widest] // 2)
    return [
        (
            "  "
            + "  ".join(pad(squeeze(c, w), w) for c, w in zip(row, wide, strict=True))
        ).rstrip()
        for row in rows
    ]


def noted(note: str | Table | Drawing, indent: str, width: int) -> list[str]:
    """A note of a step: a sentence, a table, or a drawing as it stands."""
    if isinstance(note, str):
        return wrap(note, indent, width=width)
    if isinstance(note, Drawing):
        return [f"{indent}{line}" for line in note.lines]
    return [indent[2:] + line for line in table(note, width - len(indent[2:]))]


def some(size: int, most: int, keep: int | None = None) -> list[int | None]:
    """Indices 0 to size - 1, or the first and last of them around None for the rest.

    keep: an index that stays.

    >>> some(3, 4), some(9, 4), some(9, 5, keep=5)
    ([0, 1, 2], [0, 1, None, 8], [0, 1, None, 5, None, 8])
    """
    if size <= most:
        return list(range(size))
    tail = max(1, most // 4)
    first, last = list(range(most - tail - 1)), list(range(size - tail, size))
    if keep is None or keep in first or keep in last:
        return [*first, None, *last]
    before = [None] if keep > len(first) - 1 else []
    after = [None] if keep < size - tail - 1 else []
    return [*first[:-1], *before, keep, *after, *last]


def number(value: Any) -> str:
    """A value to four decimals; whole numbers and truth values as they are."""
    if isinstance(value, bool | int):
        return str(value)
    if value != value or value in (float("inf"), float("-inf")):
        return str(value)
    text = f"{value:.4f}" if abs(value) < 1e4 else f"{value:.4g}"
    return "0.0000" if text == "-0.0000" else text


def numbers(values: Sequence[Any], most: int = 6) -> str:
    """Values in a row, the first and the last of them where they are more than `most`.

    >>> numbers([0.5, -1.0]), numbers([1.0, 2.0, 3.0, 4.0], most=3)
    (' 0.5000  -1.0000', ' 1.0000 ...  4.0000')
    """
    shown = some(len(values), most)
    texts = ["..." if i is None else f"{number(values[i]):>7}" for i in shown]
    return "  ".join(texts).replace("  ...  ", " ... ")


def columns(text: str) -> int:
    """How many columns a terminal gives the text."""
    if text.isascii():
        return len(text)
    return sum(
        0
        if unicodedata.combining(c)
        else 2
        if unicodedata.east_asian_width(c) in "WF"
        else 1
        for c in text
    )


def pad(text: str, width: int) -> str:
    return text + " " * (width - columns(text))


def clip(text: str, width: int) -> str:
    """The text, or its start and dots where it is longer than `width` columns."""
    if columns(text) <= width:
        return text
    while columns(text) > width - 2:
        text = text[:-1]
    return text + ".."


def squeeze(text: str, width: int) -> str:
    """The text, or its start and its end where it is longer than `width` columns."""
    if columns(text) <= width:
        return text
    end = ""
    while columns(end) < width // 2:
        end = text[-1] + end
        text = text[:-1]
    return clip(text, width - columns(end)) + end
