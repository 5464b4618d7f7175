"""The record as plain text, at most 100 columns: what a terminal, a pipe or a screen
reader is given. Colour is an extra, and only where the caller asks for it."""

import re
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

from steps.walk.order import Block, Drawing, Table, Title, WrongTurn, statements

if TYPE_CHECKING:
    from steps.walk.recorder import Entry

WIDTH = 100
ROWS = 12  # more rows than this are summarised
SHEETS = 4  # and so are more heads than this
COLOURS = {
    "computed": "32",
    "rearranged": "36",
    "copied": "33",
    "FAILS": "1;31",
    "bold": "1",
}

LEGEND = """\
Each tensor is shown with the statement that made it, its shape, its axes by name, and
where its numbers came from, which is measured as the statement runs:
  computed    new numbers
  rearranged  an earlier tensor's numbers where they were, in its storage, indexed anew
  copied      an earlier tensor's numbers, put into new storage
  trainable   said of weights: what training would change
Axes: B sentences, T tokens, H heads, D numbers a head (head_dim), V ids; H*D is one
axis, the heads side by side. T? has the size of T and need not hold tokens in order,
and likewise H*D?: such axes come from wrong turns.

A tensor's numbers lie in a row, its storage. A stride is how far apart in that row two
neighbours along an axis are: with axes (B, T, H, D) and strides (24, 6, 3, 1) the next
token is 6 places on, the next head 3. transpose swaps strides and moves nothing.
Contiguous: they lie as they are read, last axis first. An offset is a place in the row.
  with seeded(123):       draws inside are the first after torch.manual_seed(123)
    after=[layers]        or the first after the draws of these layers
  loaded(layer, weights)  the layer, its own weights replaced by copies of these"""

# What `MultiHeadAttention` calls the axes that the steps name by letters.
CLASS_AXES = {"b": "B", "num_tokens": "T", "num_heads": "H", "head_dim": "D"}


class Text:
    """Writes blocks as text.

    colour: whether to add ANSI colours.
    """

    def __init__(self, colour: bool = False) -> None:
        self.colour = colour
        self._told: set[str] = set()

    def block(self, block: Block) -> str:
        """One step, from its heading to its checks."""
        self._told = set()
        lines = [self._paint(heading(block.title), "bold")]
        if block.title.headings:
            quoted = "; ".join(f'"{text}"' for text in block.title.headings)
            lines += wrap(f"Article: {quoted}")
        for paragraph in filter(None, block.says.split("\n\n")):
            lines += ["", *wrap(paragraph)]
        lines += self._entries(block, block)
        for turn in block.wrong_turns:
            lines += self._wrong_turn(turn, block)
        lines += self._follow(block)
        for note in block.notes:
            lines += ["", *noted(note)]
        if block.checks:
            lines += ["", self._paint("Checks", "bold")]
            for check in block.checks:
                told = checked(check.claim, check.holds, check.detail)
                if not check.holds:
                    told[0] = told[0].replace("FAILS", self._paint("FAILS", "FAILS"), 1)
                lines += told
        return "\n".join(line.rstrip() for line in lines) + "\n"

    def _paint(self, text: str, colour: str) -> str:
        return f"\033[{COLOURS[colour]}m{text}\033[0m" if self.colour else text

    def _entries(
        self, part: Block | WrongTurn, block: Block, indent: str = ""
    ) -> list[str]:
        """Every statement in order and, under each, the tensors that it made."""
        lines: list[str] = []
        tight = False  # after a statement that made nothing, or a block's head
        for statement, made in statements(part):
            own = indent + "  " * statement.depth
            if not tight or (made and not lines[-1].endswith(":")):
                lines.append("")
            tight = not made
            lines += code(statement.shown, own)
            if statement.filled:
                lines += code(statement.filled, own + "  here: ")
            for entry in made:
                lines += self._entry(entry, len(made) > 1, block, own + "  ")
        return lines

    def _entry(
        self, entry: "Entry", several: bool, block: Block, indent: str
    ) -> list[str]:
        subject = ""
        if several or not entry.name or "." in entry.name:
            subject = (entry.name or entry.expression) + ": "
        if subject.removeprefix("return ") == entry.statement + ": ":
            subject = ""
        says = f"{subject}shape {entry.shape}, "
        if not all(axis.isdigit() for axis in entry.axes):
            says += f"axes ({', '.join(entry.axes)}), "
        origin = "\2" * len(entry.origin)  # its colour must not count as columns
        says += origin
        if entry.shares_storage_with and entry.in_place:
            says += f" in place, in the storage of {entry.shares_storage_with}"
        elif entry.shares_storage_with:
            says += f": the storage of {entry.shares_storage_with}"
        if entry.tensor.requires_grad and entry.origin != "rearranged":
            says += ", trainable"
        if entry.origin != "computed":
            layout = "contiguous" if entry.contiguous else "not contiguous"
            says += f", strides {entry.stride}, {layout}"
        painted = self._paint(entry.origin, entry.origin)
        lines = [
            line.replace(origin, painted) for line in wrap(says, indent, indent + "  ")
        ]
        if entry.name and block.numbers:
            lines += [indent + line for line in self._values(entry, block)]
        return lines

    def _values(self, entry: "Entry", block: Block) -> list[str]:
        """The numbers: rows labelled by token, columns grouped by head."""
        axes, numbers = walk_axes(entry, by_head(block.entries)), entry.numbers()
        if numbers.dim() == 0:
            return ["  " + number(numbers.item())]
        if axes[-3:] == ["T", "H", "D"]:  # a row is a token: its heads side by side
            axes = [*axes[:-2], "H*D"]
            numbers = numbers.reshape(*numbers.shape[:-2], -1)
        if numbers.dim() == 1:
            axes, numbers = ["", *axes], numbers[None]
        lines = []
        sheets = list(product(*(range(size) for size in numbers.shape[:-2])))
        for at in some(len(sheets), SHEETS):
            if at is None:
                lines.append(f"... {len(sheets) - SHEETS + 1} more ...")
                continue
            index = sheets[at]
            named = [
                self._place(axis, i, block)
                for axis, i, size in zip(axes, index, numbers.shape, strict=False)
                if size > 1 or axis == "H"
            ]
            if named:
                lines.append(", ".join(named))
            lines += self._sheet(numbers[index], axes[-2], axes[-1], block)
        return lines

    def _sheet(self, numbers: Any, row: str, column: str, block: Block) -> list[str]:
        """A matrix as text: labels, titles over the columns, a bar between heads."""
        height, width = numbers.shape
        rows = some(height, ROWS, keep=block.follow if row == "T" else None)
        labels = {r: self._label(row, r, block, height) for r in rows if r is not None}
        margin = max(columns(label) for label in labels.values())
        shown = some(width, max((WIDTH - 6 - margin) // 12, 3))
        picked = [c for c in shown if c is not None]
        cells = {r: {c: number(numbers[r, c].item()) for c in picked} for r in labels}
        titles = {c: column_title(column, c, block) for c in picked}
        wide = max(columns(t) for t in [*titles.values(), *cells[0].values()])
        wide = max(
            wide, *(len(text) for line in cells.values() for text in line.values())
        )

        head = head_width(block, width) if column == "H*D" else 0
        starts = {}  # where each column's cell begins
        gaps = {}  # what stands before it
        at, last = margin, None
        for c in shown:
            if c is None:
                at, last = at + len("  ..."), None
                continue
            apart = head and last is not None and c // head != last // head
            gaps[c] = " |  " if apart else "  "
            starts[c] = at + len(gaps[c])
            at, last = starts[c] + wide, c

        def line(label: str, texts: dict[int, str]) -> str:
            parts = ["  ..." if c is None else gaps[c] + texts[c] for c in shown]
            return pad(label, margin) + "".join(parts)

        lines = []
        if head:
            over = ""
            for c in picked:
                first = (
                    c == picked[0] or (c - 1) // head != c // head or c - 1 not in gaps
                )
                if first and (not over or len(over) < starts[c]):
                    over = over.ljust(starts[c]) + self._place("H", c // head, None)
            lines.append(over)
        if any(titles.values()):
            lines.append(line("", {c: pad(titles[c], wide) for c in picked}))
        for r in rows:
            if r is None:
                lines.append("...")
            else:
                texts = {c: text.rjust(wide) for c, text in cells[r].items()}
                lines.append(line(labels[r], texts))
        return lines

    def _place(self, axis: str, index: int, block: Block | None) -> str:
        """An index on an axis in words; the index itself is told once a block."""
        name = f"axis {axis}, index {index}"
        if axis == "T" and block and block.tokens:
            return f"{clip(block.tokens[index], 24)} (index {index})"
        if axis in ("H", "B", "2*B"):
            name = f"{'head' if axis == 'H' else 'sentence'} {index + 1}"
            if name not in self._told:
                self._told.add(name)
                return f"{name} (index {index})"
        return name

    def _label(self, axis: str, index: int, block: Block, size: int) -> str:
        """What a row is called."""
        if axis == "T" and block.tokens:
            return clip(block.tokens[index], 12)
        if axis == "H*D":
            width = head_width(block, size)
            return (
                f"head {index // width + 1}, row {index}" if width else f"row {index}"
            )
        if axis in ("B", "H"):
            return f"{'head' if axis == 'H' else 'sentence'} {index + 1}"
        if axis == "V":
            return f"id {index}"
        if axis == "context_length":
            return f"position {index}"
        return f"row {index}" if axis else ""

    def _wrong_turn(self, turn: WrongTurn, block: Block) -> list[str]:
        lines = ["", *wrap(f"Wrong turn: {turn.says}")]
        lines += self._entries(turn, block, "  ")
        if turn.error:
            lines += wrap(turn.error, "    raises ", "    ")
        return lines

    def _follow(self, block: Block) -> list[str]:
        """Where the followed token's numbers are now."""
        if not block.tokens:
            return []
        lines: list[list[str]] = []
        names = Counter(entry.name for entry in block.entries)
        turns: Counter[str] = Counter()
        for entry in block.entries:
            axes = walk_axes(entry, by_head(block.entries))
            turns[entry.name] += 1
            if entry.name and "T" in axes:
                found = followed(entry, block.follow, axes.index("T"))
                if names[entry.name] > 1:
                    found[0][0] += f", {turns[entry.name]} of {names[entry.name]}"
                lines += found
        if not lines:
            return []
        wide = max(len(line[0]) for line in lines)
        far = max(len(line[1]) for line in lines)
        token = clip(block.tokens[block.follow], 24)
        axis = "T" if any("T" in e.axes for e in block.entries) else "num_tokens"
        title = f"Following {token} (index {block.follow} of the {axis} axis)"
        rows = [f"  {a.ljust(wide)}  {b.ljust(far)}  {c}" for a, b, c in lines]
        return ["", self._paint(title, "bold"), *(row[:WIDTH] for row in rows)]


def heading(title: Title) -> str:
    return f"Step {title.number}: {title.title}"


def followed(entry: "Entry", position: int, at: int) -> list[list[str]]:
    """Rows (index, offset, values): the vectors at `position` of the axis `at`."""
    dims = (
        range(len(entry.shape))
        if at == len(entry.shape) - 1
        else range(len(entry.shape) - 1)
    )
    ranges = [[position] if d == at else range(entry.shape[d]) for d in dims]
    rows = []
    picked = list(product(*ranges))
    for i in some(len(picked), SHEETS):
        if i is None:
            rows.append(["...", "", ""])
            continue
        index = picked[i]
        offset = entry.offset + sum(
            a * s for a, s in zip(index, entry.stride, strict=False)
        )
        vector = entry.numbers()[index].reshape(-1)
        values = [number(vector[c].item()) for c in range(min(vector.numel(), 6))]
        more = " ..." if vector.numel() > 6 else ""
        place = f"{entry.name}{list(index)}"
        rows.append([place, f"offset {offset}", "  ".join(values) + more])
    return rows


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


def column_title(axis: str, column: int, block: Block) -> str:
    """What stands over a column: its token or its head, where it is one's."""
    if axis == "T" and block.tokens:
        return clip(block.tokens[column], 10)
    return f"head {column + 1}" if axis == "H" else ""


def head_width(block: Block, width: int) -> int:
    """D, where the width is that of whole heads; else 0."""
    return block.head_dim if block.head_dim and width % block.head_dim == 0 else 0


def some(size: int, most: int, keep: int | None = None) -> list[int | None]:
    """Indices 0 to size - 1, or the first and last of them around None for the rest."""
    if size <= most:
        return list(range(size))
    tail = max(1, most // 4)
    first, last = list(range(most - tail - 1)), list(range(size - tail, size))
    if keep is None or keep in first or keep in last:
        return [*first, None, *last]
    return [*first[:-1], None, keep, None, *last]


def number(value: Any) -> str:
    """A value to four decimals; whole numbers and truth values as they are."""
    if isinstance(value, bool | int):
        return str(value)
    if value != value or value in (float("inf"), float("-inf")):
        return str(value)
    text = f"{value:.4f}" if abs(value) < 1e4 else f"{value:.4g}"
    return "0.0000" if text == "-0.0000" else text


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


def wrap(text: str, first: str = "", rest: str | None = None) -> list[str]:
    """The text in lines of at most WIDTH columns; a shape, (1, 4, 6), stays whole."""
    text = re.sub(r"(?<=\d), (?=\d)", ",\0", text)
    # textwrap counts characters: this one makes up for the second column of a wide one
    filled = text
    if not text.isascii():
        filled = "".join("\1" * (columns(c) - 1) + c for c in text)
    lines = textwrap.wrap(
        filled,
        WIDTH if filled == text else WIDTH - 1,
        initial_indent=first,
        subsequent_indent=first if rest is None else rest,
        break_on_hyphens=False,
    )
    return [line.replace("\1", "").replace("\0", " ") for line in lines]


def code(text: str, indent: str) -> list[str]:
    """A statement; one that is too wide goes on under itself."""
    return wrap(text, indent, " " * (len(indent) + 4))


def noted(note: str | Table | Drawing) -> list[str]:
    """A note of a step: a sentence, a table, or a drawing as it stands."""
    if isinstance(note, Drawing):
        return [f"  {line}" for line in note.lines]
    return table(note) if isinstance(note, Table) else wrap(note)


def checked(claim: str, holds: bool, detail: str) -> list[str]:
    """A claim and whether it holds; what was found instead where it does not."""
    lines = wrap(f"{'holds' if holds else 'FAILS'}  {claim}", "  ", " " * 9)
    return lines if holds else lines + wrap(detail, " " * 9)


def table(note: Table) -> list[str]:
    """A table under its header."""
    rows = [note.header, *note.rows]
    rows = [
        rows[i] if i is not None else ("...",) * len(rows[0])
        for i in some(len(rows), ROWS + 1)
    ]
    wide = [max(columns(row[c]) for row in rows) for c in range(len(note.header))]
    while (over := sum(wide) + 2 * len(wide) - WIDTH) > 0:
        widest = wide.index(max(wide))
        wide[widest] = max(wide[widest] - over, wide[widest] // 2)
    return [
        "  " + "  ".join(pad(squeeze(c, w), w) for c, w in zip(row, wide, strict=True))
        for row in rows
    ]


def closing(checks: int, held: int) -> str:
    """The last line of a run."""
    if checks == held:
        return f"All {checks} checks held."
    return f"{held} of {checks} checks held; {checks - held} did not."


def listing(titles: list[Title]) -> Iterator[str]:
    """A step a line: number, title and the article's heading; a line for each more."""
    wide = max(len(title.title) for title in titles)
    for title in titles:
        for count, quoted in enumerate(title.headings or ("",)):
            number, name = ("", "") if count else (title.number, title.title)
            yield f"{number:>4}  {name.ljust(wide)}  {quoted}".rstrip()
