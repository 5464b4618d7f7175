"""A tensor's numbers as text: rows labelled by token, columns grouped by head.

A sheet is one matrix of a tensor. Sheets stand side by side where the width allows it,
and every head is in every table, narrowed to a first and a last number if need be. The
row of the followed token has a > before it.
"""

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from steps.layout import clip, columns, number, pad, some
from steps.words import span

if TYPE_CHECKING:
    from steps.walk.order import Block
    from steps.walk.recorder import Entry

ROWS = 8  # more rows than this are summarised
SHEETS = 24  # and so are more heads, or other sheets, than this
GAP, BAR = "  ", " |"
# The names that the classes give to the walk's axes.
CLASS_AXES = {"b": "B", "num_tokens": "T", "num_heads": "H", "head_dim": "D"}


@dataclass(frozen=True)
class Sheet:
    """A matrix with what its axes are."""

    title: str
    numbers: Any  # (rows, columns)
    row: str
    column: str


def lines_of(entry: "Entry", block: "Block", width: int, offset: bool) -> list[str]:
    """The numbers of a tensor in at most `width` columns.

    offset: say where in the storage the followed token's row is, if it is one.
    """
    axes, values = walk_axes(entry, by_head(block.entries)), entry.numbers()
    if values.dim() == 0:
        return [number(values.item())]
    if axes[-3:] == ["T", "H", "D"]:  # a row is a token: its heads side by side
        axes = [*axes[:-2], "H*D"]
        values = values.reshape(*values.shape[:-2], -1)
    if values.dim() == 1:
        axes, values = ["", *axes], values[None]
    every, after = sheets(axes, values, block), ""
    if offset and len(every) == 1 and every[0].row == "T" and block.tokens:
        first = place(entry, (*(0 for _ in axes[:-2]), block.follow))
        after = "   " + span("offset", first, len(values[..., 0, :].flatten()))
    drawn = [_drawn(sheet, block, width - len(after), after) for sheet in every]
    return _beside(drawn, width)


def sheets(axes: list[str], values: Any, block: "Block") -> list[Sheet]:
    """Each matrix of a tensor, the middle left out of very many."""
    found = []
    told = values.shape[:-2]
    every = list(product(*(range(size) for size in told)))
    gap = ""
    for at in some(len(every), SHEETS):
        if at is None:
            gap = "... "
            continue
        index = every[at]
        named = [
            called(axis, i, block)
            for axis, i, size in zip(axes, index, told, strict=False)
            if size > 1 or axis == "H"
        ]
        title = gap + ", ".join(named)
        found.append(Sheet(title, values[index], axes[-2], axes[-1]))
        gap = ""
    return found


def place(entry: "Entry", index: tuple[int, ...]) -> int:
    """The offset of an element in its storage."""
    steps = zip(index, entry.stride, strict=False)
    return entry.offset + sum(i * stride for i, stride in steps)


def _drawn(sheet: Sheet, block: "Block", width: int, after: str) -> list[str]:
    """One sheet, in as many bands as its heads need."""
    height, across = sheet.numbers.shape
    rows = _rows(sheet, height, block)
    marks = sheet.row == "T" and block.tokens
    labels = {}
    for r in rows:
        if r is not None:
            mark = "> " if marks and r == block.follow else "  " if marks else ""
            labels[r] = mark + _label(sheet.row, r, block, height)
    margin = max(columns(label) for label in labels.values())
    groups = _groups(sheet, across, block)
    wide = _wide(sheet, labels, groups, block)
    shown, per_band = _fit(groups, wide, width - margin, block, sheet)
    lines = []
    for first in range(0, len(shown), per_band):
        band = list(enumerate(shown))[first : first + per_band]
        lines += _heads(sheet, band, margin, wide, block)
        for r in rows:
            if r is None:
                lines.append("  ..." if marks else "...")
                continue
            text = pad(labels[r], margin)
            for at, group in band:
                text += BAR if at != band[0][0] else ""
                text += _cells(sheet, r, group, wide)
            lines.append(text + after * (labels[r].startswith("> ")))
    return [*(["  " * bool(marks) + sheet.title] if sheet.title else []), *lines]


def _rows(sheet: Sheet, height: int, block: "Block") -> list[int | None]:
    """Which rows are shown: of weights, the first and last of every head."""
    if sheet.row == "T":
        return some(height, ROWS, keep=block.follow)
    head = head_width(block, height) if sheet.row == "H*D" else 0
    if not head or height <= 12:
        return some(height, ROWS if height < 1000 else 4)
    picked: list[int | None] = []
    for h in some(height // head, SHEETS):
        if h is None:
            picked.append(None)
            continue
        first, last = h * head, (h + 1) * head - 1
        gap = [None] if head > 2 else []
        picked += [first, *gap, last] if head > 1 else [first]
    return picked


def _groups(sheet: Sheet, across: int, block: "Block") -> list[list[int]]:
    """The columns, a group for each head where they are heads side by side."""
    head = head_width(block, across) if sheet.column == "H*D" else 0
    size = head or across
    return [list(range(at, at + size)) for at in range(0, across, size)]


def _wide(
    sheet: Sheet, rows: dict[int, str], groups: list[list[int]], block: "Block"
) -> int:
    """How wide a cell is."""
    picked = [c for group in groups for c in (*group[:20], *group[-20:])]
    texts = [column_title(sheet.column, c, block) for c in picked]
    for r in rows:
        texts += map(number, sheet.numbers[r, picked].tolist())
    return max(map(columns, texts))


def _fit(
    groups: list[list[int]], wide: int, width: int, block: "Block", sheet: Sheet
) -> tuple[list[list[int | None]], int]:
    """The columns shown of each group, and how many groups go into a band."""
    cell, bars = wide + len(GAP), len(BAR) * (len(groups) - 1)
    full = len(groups[0])
    keep = block.follow if sheet.column == "T" else None
    most = full
    if (full * cell) * len(groups) + bars > width:
        room = (width - bars) // len(groups) - len("  ...") * (1 + (keep is not None))
        if full > 3:  # with the gap, which counts as one
            most = min(max(room // cell, 2) + 1, full - 1)
    shown: list[list[int | None]] = [
        [None if i is None else group[i] for i in some(full, most, keep)]
        for group in groups
    ]
    size = max(_size(group, wide) for group in shown) + len(BAR)
    return shown, max((width + len(BAR)) // size, 1)


def _size(group: list[int | None], wide: int) -> int:
    return sum(len("  ...") if c is None else len(GAP) + wide for c in group)


def _cells(sheet: Sheet, row: int, group: list[int | None], wide: int) -> str:
    return "".join(
        "  ..." if c is None else GAP + number(sheet.numbers[row, c].item()).rjust(wide)
        for c in group
    )


def _heads(
    sheet: Sheet, band: list, margin: int, wide: int, block: "Block"
) -> list[str]:
    """The lines over the columns: heads, and tokens."""
    lines = []
    if sheet.column == "H*D" and head_width(block, sheet.numbers.shape[1]):
        over = " " * margin
        for at, group in band:
            over += BAR if at != band[0][0] else ""
            over += pad(GAP + called("H", at, block), _size(group, wide))
        lines.append(over)
    titles = [
        (c, "" if c is None else column_title(sheet.column, c, block))
        for _, group in band
        for c in group
    ]
    if any(title for _, title in titles):
        parts = ("  ..." if c is None else GAP + t.rjust(wide) for c, t in titles)
        lines.append(" " * margin + "".join(parts))
    return lines


def _beside(drawn: list[list[str]], width: int) -> list[str]:
    """Sheets side by side, as many as the width holds; all bands as wide as one."""
    lines: list[str] = []
    band: list[list[str]] = []
    for sheet in drawn:
        sizes = [max(map(columns, s)) for s in [*band, sheet]]
        if band and sum(sizes) + len(BAR) * len(band) > width:
            lines += _joined(band)
            band = []
        band.append(sheet)
    return [*lines, *(_joined(band) if band else [])]


def _joined(band: list[list[str]]) -> list[str]:
    height = max(map(len, band))
    wide = [max(map(columns, sheet)) for sheet in band]
    rows = []
    for r in range(height):
        cells = [sheet[r] if r < len(sheet) else "" for sheet in band]
        rows.append(
            BAR.join(pad(c, w) for c, w in zip(cells, wide, strict=True)).rstrip()
        )
    return rows


def called(axis: str, index: int, block: "Block") -> str:
    """An index on an axis in words."""
    if axis == "T" and block.tokens:
        return f"{clip(block.tokens[index], 24)}"
    if axis == "H":
        return f"head {index + 1}"
    if axis in ("B", "2*B"):
        return f"sentence {index + 1}"
    return f"axis {axis}, index {index}"


def _label(axis: str, index: int, block: "Block", size: int) -> str:
    """What a row is called."""
    if axis == "T" and block.tokens:
        return clip(block.tokens[index], 12)
    if axis == "H*D":
        width = head_width(block, size)
        return f"head {index // width + 1}, row {index}" if width else f"row {index}"
    if axis in ("B", "H"):
        return called(axis, index, block)
    if axis == "V":
        return f"id {index}"
    if axis == "context_length":
        return f"position {index}"
    return f"row {index}" if axis else ""


def column_title(axis: str, column: int, block: "Block") -> str:
    """What stands over a column: its token or its head, where it is one's."""
    if axis == "T" and block.tokens:
        return clip(block.tokens[column], 10)
    return f"head {column + 1}" if axis == "H" else ""


def head_width(block: "Block", width: int) -> int:
    """D, where the width is that of whole heads; else 0."""
    return block.head_dim if block.head_dim and width % block.head_dim == 0 else 0


def by_head(entries: list["Entry"]) -> set[int]:
    """The storages whose numbers a class also indexes by head."""
    return {address(entry) for entry in entries if "num_heads" in entry.axes}


def walk_axes(entry: "Entry", heads: set[int]) -> list[str]:
    """The entry's axes by the walk's letters, whatever a class calls them.

    heads: from `by_head`; d_out is heads side by side only where it is split so.
    """
    letters = CLASS_AXES | ({"d_out": "H*D"} if address(entry) in heads else {})
    return [letters.get(axis, axis) for axis in entry.axes]


def address(entry: "Entry") -> int:
    """Which storage holds the entry's numbers."""
    return entry.tensor.untyped_storage().data_ptr()
