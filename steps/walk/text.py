"""The record as plain text: what a terminal, a pipe or a screen reader is given.

The order of a block: what it is about, where to look, the path of its statements at a
glance, the numbers of each with what is said of it, the wrong turns, the checks. Colour
is an extra, and only where the caller asks for it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, product, takewhile
from typing import TYPE_CHECKING, Any

from steps.layout import (
    WIDTH,
    Table,
    columns,
    noted,
    numbers,
    pad,
    some,
    squeeze,
    table,
    wrap,
)
from steps.walk.order import Block, Code, Title, WrongTurn, statements
from steps.walk.sheets import by_head, head_width, lines_of, place, walk_axes

if TYPE_CHECKING:
    from steps.walk.recorder import Entry
    from steps.walk.turns import Against

FOLLOWED = 12  # rows of the followed token listed under a rearranged tensor
COLOURS = {
    "drawn": "35",
    "made": "35",
    "computed": "32",
    "rearranged": "36",
    "copied": "33",
    "unchanged": "36",
    "FAILS": "1;31",
    "bold": "1",
}
ORIGINS = {
    "drawn": "new numbers from the random generator",
    "made": "new numbers that come from no tensor",
    "computed": "new numbers, worked out from other tensors",
    "rearranged": "an earlier tensor's numbers where they were, indexed anew",
    "copied": "an earlier tensor's numbers, put into new storage",
    "unchanged": "the very tensor that went in came out",
}
LETTERS = {
    "B": "sentences",
    "T": "tokens",
    "H": "heads",
    "D": "numbers per head",
    "d_in": "features of a token coming in",
    "H*D": "the heads' numbers side by side",
    "V": "ids of the vocabulary",
    "context_length": "positions there is room for",
}
MEASURED = "Where a tensor's numbers come from is measured as its statement runs"
LEGEND = (
    f"{MEASURED}. "
    + "; ".join(f"{origin}: {words}" for origin, words in ORIGINS.items())
    + ".",
    "Axes: B sentences, T tokens, H heads, D numbers per head; H*D is one axis, the "
    "heads side by side. T? and H*D? have the size of T and H*D, but a wrong turn has "
    "mixed what they hold.",
    "A tensor's numbers lie in a row, its storage. An offset is a place in it, and a "
    "stride how far apart in it neighbours along an axis are. Contiguous: they lie as "
    "they are read. > marks the token that is followed. A line that begins with holds "
    "is a check that ran.",
)


@dataclass
class Like:
    """Statements that are alike but for their names; most are the only one."""

    code: Code
    made: list["Entry"]
    others: list[list["Entry"]] = field(default_factory=list)
    notes: list[Any] = field(default_factory=list)

    @property
    def named(self) -> list["Entry"]:
        return [entry for entry in self.made if entry.name]

    @property
    def names(self) -> list[str]:
        """What these statements give names to."""
        return [self.code.text.partition(" = ")[0], *(e.name for e in self.named)] + [
            entry.name for entry in self.also
        ]

    @property
    def also(self) -> list["Entry"]:
        """The named results of the other statements."""
        return [entry for made in self.others for entry in made if entry.name]


class Text:
    """Writes blocks as text.

    colour: whether to add ANSI colours.
    width: columns of the reader's terminal, from 80 to 120.
    everything: every table of every tensor, nothing told by "likewise".
    """

    def __init__(
        self, colour: bool = False, width: int = WIDTH, everything: bool = False
    ) -> None:
        self.colour, self.width, self.everything = colour, width, everything

    def lines(self, paragraphs: Sequence[str]) -> list[str]:
        """Paragraphs of the title or of what stands before a step alone."""
        return [line for text in paragraphs for line in self._wrap(text)]

    def block(self, block: Block) -> str:
        """One step, from its heading to its checks."""
        lines = [*self._heading(block.title)]
        for count, paragraph in enumerate(block.says.split("\n\n")):
            lines += [""] * (count > 0) + self._wrap(paragraph)
        lines += ["", *self._titled("Look at:", block.look, "")]
        likes = [Like(code, made) for code, made in statements(block)]
        if not self.everything:
            likes = list(alike(likes))
        path = block.said_of("path")
        lines += [""] * bool(path)
        for note in path:
            lines += noted(note, "  ", self.width)
        if self.everything or not path:
            lines += self._path(likes, block)
        lines += self._numbers(likes, block)
        whole = [noted(note, "  ", self.width) for note in block.said_of("")]
        lines += [""] * bool(whole) + [line for said in whole for line in said]
        for turn in block.wrong_turns:
            lines += ["", *self._wrong_turn(turn, block)]
        lines.append("")
        for check in block.checks:
            lines += self._check(check.claim, check.holds, check.detail)
        return "\n".join(line.rstrip() for line in lines) + "\n"

    def _wrap(self, text: str, first: str = "", rest: str | None = None) -> list[str]:
        return wrap(text, first, rest, self.width)

    def _paint(self, text: str, colour: str) -> str:
        return f"\033[{COLOURS[colour]}m{text}\033[0m" if self.colour else text

    def _titled(self, title: str, text: str, rest: str) -> list[str]:
        first, *more = self._wrap(f"{title} {text}", rest=rest)
        return [first.replace(title, self._paint(title, "bold"), 1), *more]

    def _heading(self, title: Title) -> list[str]:
        """The title, the file at the right edge, and the article's headings."""
        said, file = heading(title), f"steps/step{title.number}.py"
        gap = self.width - len(said) - len(file)
        bold = self._paint(said, "bold")
        lines = [bold + " " * gap + file] if gap > 1 else [bold, file]
        if title.headings:
            quoted = "; ".join(f'"{text}"' for text in title.headings)
            lines += self._wrap(f"Article: {quoted}", rest="  ")
        return lines

    def _path(self, likes: list[Like], block: Block) -> list[str]:
        """The statements that make tensors, each with its shape, axes and origin."""
        heads = by_head(block.entries)
        rows = [("statement", "shape", "axes", "numbers")]
        for like in likes:
            if not like.named:
                continue
            said = like.code.text
            for entry in {e.shape: e for e in like.named}.values():
                shape = str(entry.shape)
                if "." in entry.name:
                    count = sum(e.shape == entry.shape for e in like.named)
                    shape = f"{f'{count} weights' if count > 1 else 'weight'} {shape}"
                axes = ", ".join(walk_axes(entry, heads))
                axes = f"({axes})" if not axes.replace(", ", "").isdigit() else ""
                trained = ", trainable" if is_trainable(entry) else ""
                rows.append((said, shape, axes, entry.origin + trained))
                said = ""  # of results of several shapes
            if like.also:
                names = ", ".join(dict.fromkeys(stem(e) for e in like.also))
                rows.append((f"  likewise {names}", "", "", ""))
        if len(rows) == 1:
            return []
        wide = [max(columns(row[c]) for row in rows) for c in range(4)]
        room = self.width - 8 - sum(wide[1:])
        wide[0] = min(wide[0], room)
        lines = [""]
        for said, shape, axes, origin in rows:
            if not shape:  # "likewise", on its own line
                lines += self._wrap(said.strip(), "    ", "      ")
                continue
            if columns(said) > wide[0]:  # a statement is not broken: it has a line
                lines += self._wrap(said, "  ", "      ")
                said = ""
            cells = f"{pad(shape, wide[1])}  {pad(axes, wide[2])}  "
            word, comma, more = origin.partition(",")
            word = self._paint(word, word) if word in COLOURS else word
            lines.append(f"  {pad(said, wide[0])}  {cells}{word}{comma}{more}")
        return lines

    def _numbers(self, likes: list[Like], block: Block) -> list[str]:
        """Each statement with its numbers and what is said of it."""
        lines: list[str] = []
        shown = list(self._said(likes, block))
        later = {e.shares_storage_with for e in block.entries if e.origin != "copied"}
        head = ""  # the line of a block, with seeded(123):, before what is in it
        tight = False
        for at, like in enumerate(shown):
            if like.code.text.endswith(":"):
                inside = within(shown, at)
                head = like.code.shown if inside else ""
                if len(inside) > 1 or (inside and inside[0].others):
                    lines += [""] * (not tight) + self._statement(like.code, "", 0)
                    head, tight = "", True
                continue
            if not tight or like.made or head:
                lines += [""] if not (lines and lines[-1].endswith(":")) else []
            depth = 0 if head else like.code.depth
            lines += self._statement(like.code, head, depth)
            body = "  " * (depth + 1)
            told = []
            if self._has_numbers(like, block):
                told = self._made(like, block, body, later)
            for note in like.notes:
                told += noted(note, body, self.width)
            lines += told
            head, tight = "", not told
        return lines

    def _said(self, likes: list[Like], block: Block) -> Iterator[Like]:
        """The statements that are shown under the path, each with what is said of it.

        A note stands once, under the first statement that gives its name.
        """
        said: set[str] = set()
        for like in likes:
            names = dict.fromkeys(like.names)
            new = [name for name in names if name not in said]
            like.notes = [note for name in new for note in block.said_of(name)]
            said.update(names)
            head = like.code.text.endswith(":")
            if like.notes or head or self._has_numbers(like, block):
                yield like

    def _has_numbers(self, like: Like, block: Block) -> bool:
        """Whether a statement's numbers are told."""
        if self.everything or block.shown is None:
            return True
        return bool({*like.names} & {*block.shown})

    def _statement(
        self, code: Code, head: str, depth: int, under: bool = True
    ) -> list[str]:
        """A statement as it stands and, beside it, with the sizes put in.

        under: where there is no room beside it, under it; else not at all.
        """
        own = "  " * depth
        text = f"{head} {code.shown}" if head else code.shown
        if not code.filled:
            return self._wrap(text, own, own + "    ")
        beside = f"{own}{text}    here: {code.filled}"
        if columns(beside) <= self.width:
            return [beside]
        here = self._wrap(code.filled, own + "  here: ", own + "    ")
        return self._wrap(text, own, own + "    ") + here * under

    def _made(
        self, like: Like, block: Block, indent: str, later: set[str | None]
    ) -> list[str]:
        """The numbers of a statement, and one line for each that is alike."""
        lines, before = [], ""
        for entry in like.made:
            label = entry.name or entry.expression
            if before and not entry.name and label.startswith(before):
                label = label.removeprefix(before)  # the next call of a chain
            several = label if len(like.made) > 1 else ""
            lines += self._entry(entry, several, like, block, indent, later)
            before = entry.expression
        # Of what is rearranged the numbers were told with an earlier one.
        new = [e for e in like.also if e.origin != "rearranged" and followed(e, block)]
        wide = max((columns(stem(e)) for e in new), default=0)
        for entry in new:
            lines += self._likewise(entry, wide, block, indent)
        return lines

    def _likewise(
        self, entry: "Entry", wide: int, block: Block, indent: str
    ) -> list[str]:
        said = f"{indent}likewise {pad(stem(entry), wide)}"
        rows = followed(entry, block)
        start = f'{said}  "{squeeze(block.tokens[block.follow], 12)}"  '
        return [start + self._row(entry, rows, block, self.width - columns(start))]

    def _row(self, entry: "Entry", rows: list, block: Block, room: int) -> str:
        """A token's numbers in one row, a bar between heads."""
        values = [value for _, _, row in rows for value in row]
        axes = walk_axes(entry, by_head(block.entries))
        size = len(rows[0][2])
        if axes[-1] == "H*D":
            size = head_width(block, size) or size
        parts = [values[at : at + size] for at in range(0, len(values), size)]
        most = (room + 3) // len(parts) - 3
        shown = [numbers(part, max(most // 9, 3)) for part in parts]
        text = " | ".join(shown)
        return text if len(text) <= room else numbers(values, (room - 5) // 9)

    def _entry(
        self,
        entry: "Entry",
        label: str,
        like: Like,
        block: Block,
        indent: str,
        later: set[str | None],
    ) -> list[str]:
        """One result: where it stands in storage, and its numbers."""
        link = not entry.name
        moved = entry.origin not in ("drawn", "made", "computed")
        if link and not moved and not self.everything:
            return []
        says = []
        if label and (link or "." in entry.name):
            says = [f"{label}: {entry.shape}"]
        if moved or link:
            says.append(where(entry))
        lines = self._wrap(", ".join(says), indent, indent + "  ")
        if link or not block.numbers:
            return lines
        brief = entry.name in block.brief and not self.everything
        same = moved and entry.origin != "copied" and not self._anew(entry, like, block)
        rows = followed(entry, block)
        if rows and (brief or same):
            return self._rows(rows, indent, moved) + lines
        room = self.width - len(indent)
        shared = entry.name in later or entry.origin == "rearranged"
        drawn = [indent + s for s in lines_of(entry, block, room, shared)]
        if entry.origin == "rearranged" and 1 < len(rows) <= FOLLOWED:
            places = [f"{list(index)} offset {offset}" for index, offset, _ in rows]
            drawn += self._wrap(", ".join(places), indent + "> ", indent + "  ")
        if label and "." in entry.name:  # one of several weights: its name is above
            return lines + drawn
        return drawn + lines

    def _anew(self, entry: "Entry", like: Like, block: Block) -> bool:
        """Whether a rearranged tensor's rows or columns are grouped in another way.

        They are where heads become sheets of their own, and where the statement copied
        the numbers into another order. Where no row is the followed token's, only the
        table can show it.
        """
        axes = walk_axes(entry, by_head(block.entries))
        apart = axes[-3:-1] == ["H", "T"] and entry.function != "__getitem__"
        laid_out = any(made.origin == "copied" for made in like.made)
        return self.everything or apart or laid_out or not followed(entry, block)

    def _rows(self, rows: list, indent: str, offsets: bool) -> list[str]:
        """The followed token's numbers alone, and where they stand in storage."""
        places = [f"[{', '.join(map(str, index))}]" for index, _, _ in rows]
        wide = max(map(len, places))
        lines = []
        for at in some(len(rows), FOLLOWED):
            if at is None:
                lines.append(indent + "  ...")
                continue
            _, offset, values = rows[at]
            start = f"{indent}> {places[at]:<{wide}}  "
            start += f"offset {offset:<4}  " if offsets else ""
            room = self.width - columns(start)
            lines.append(start + numbers(values, (room - 5) // 9))
        return lines

    def _wrong_turn(self, turn: WrongTurn, block: Block) -> list[str]:
        """The statements, the result beside the right one, and why."""
        lines = self._titled("Wrong turn:", turn.says, "  ")
        head = ""
        for code in turn.code:
            if code.text.endswith(":"):
                head = code.shown
                continue
            lines += self._statement(code, head, 1, under=False)
            head = ""
        if turn.error:
            lines += self._wrap(turn.error, "    raises ", "    ")
        if self.everything:
            for entry in turn.entries:
                if entry.name:
                    room = self.width - 4
                    said = f"{entry.name}: {entry.shape}, {where(entry)}"
                    lines += self._wrap(said, "    ", "      ")
                    drawn = lines_of(entry, block, room, False) if block.numbers else []
                    lines += ["    " + line for line in drawn]
        for pair in turn.against:
            lines += self._against(pair, block)
        for note in block.said_of(turn.name):
            lines += noted(note, "  ", self.width)
        return lines + self._wrap(turn.why, "  ")

    def _against(self, pair: "Against", block: Block) -> list[str]:
        """What is the same as in the right turn, and how much is not."""
        if not pair.same_shape:
            shapes = tuple(pair.wrong_numbers.shape), tuple(pair.right_numbers.shape)
            return self._wrap(
                f"{pair.wrong} is {shapes[0]}, {pair.right} is {shapes[1]}.", "  "
            )
        same = f"The shape of {pair.right}"
        if not pair.differ:
            return self._wrap(f"{same} and, at these sizes, its numbers.", "  ")
        rows = (
            "its one row holds"
            if pair.rows == 1
            else f"all {pair.rows} rows hold"
            if pair.differ == pair.rows
            else f"{pair.differ} of {pair.rows} rows hold"
            if pair.differ > 1
            else f"1 of {pair.rows} rows holds"
        )
        lines = self._wrap(f"{same}; {rows} other numbers:", "  ")
        if not block.numbers:
            return [lines[0].removesuffix(":") + "."]
        index = f"[{', '.join(map(str, pair.at))}]" if pair.at else ""
        wide = max(len(pair.right), len(pair.wrong)) + len(index)
        for name, tensor in (
            (pair.right, pair.right_numbers),
            (pair.wrong, pair.wrong_numbers),
        ):
            start = f"    {name + index:<{wide}}  "
            row = tensor[pair.at].reshape(-1).tolist()
            lines.append(start + numbers(row, (self.width - len(start) - 5) // 9))
        return lines

    def _check(self, claim: str, holds: bool, detail: str) -> list[str]:
        lines = checked(claim, holds, detail, self.width)
        if not holds:
            lines[0] = lines[0].replace("FAILS", self._paint("FAILS", "FAILS"), 1)
        return lines


def alike(likes: Iterable[Like]) -> Iterator[Like]:
    """Statements next to each other that are alike but for their names, as one.

    Alike is what the record says: the same calls, shapes, axes and origins, in
    statements of the same form.
    """

    def form(like: Like) -> Any:
        if not like.made:
            return id(like)
        text = re.sub(r"[A-Za-z_]\w*", "_", like.code.text)
        calls = [
            (e.function, e.shape, e.axes, e.origin, bool(e.name)) for e in like.made
        ]
        return like.code.depth, text, calls

    for _, group in groupby(likes, key=form):
        first, *others = group
        first.others = [like.made for like in others]
        yield first


def within(likes: Sequence[Like], at: int) -> list[Like]:
    """The statements in the block whose head is at `at`."""
    depth = likes[at].code.depth
    return list(takewhile(lambda like: like.code.depth > depth, likes[at + 1 :]))


def where(entry: "Entry") -> str:
    """Where a tensor's numbers are from and how they lie."""
    says = entry.origin
    owner = entry.shares_storage_with
    if owner and ("(" in owner or (not entry.name and owner in entry.expression)):
        owner = None  # the text says whose it is
    if owner and entry.in_place:
        says += f" in place, in the storage of {owner}"
    elif owner and owner != entry.name:
        says += f": the storage of {owner}"
    if entry.origin in ("rearranged", "copied", "unchanged") and entry.shape:
        layout = "contiguous" if entry.contiguous else "not contiguous"
        says += f", strides {entry.stride}, {layout}"
    return says


def is_trainable(entry: "Entry") -> bool:
    return entry.tensor.requires_grad and entry.origin not in ("rearranged", "computed")


def stem(entry: "Entry") -> str:
    """What a statement gives a name to: mha_W_query for mha_W_query.weight."""
    return entry.name.partition(".")[0]


def followed(entry: "Entry", block: Block) -> list[tuple[tuple, int, list]]:
    """(index, offset, numbers) of each row that is the followed token's."""
    axes = walk_axes(entry, by_head(block.entries))
    if not block.tokens or "T" not in axes:
        return []
    at = axes.index("T")
    last = len(axes) - 1
    dims = range(len(axes)) if at == last else range(last)
    ranges = [[block.follow] if d == at else range(entry.shape[d]) for d in dims]
    values = entry.numbers()
    return [
        (index, place(entry, index), values[index].reshape(-1).tolist())
        for index in product(*ranges)
    ]


def heading(title: Title) -> str:
    return f"Step {title.number}: {title.title}"


def checked(claim: str, holds: bool, detail: str, width: int = WIDTH) -> list[str]:
    """A claim and whether it holds; what was found instead where it does not."""
    said = f"{'holds' if holds else 'FAILS'}  {claim}"
    lines = wrap(said, "  ", " " * 9, width)
    return lines if holds else lines + wrap(detail, " " * 9, width=width)


def before(
    block: Block, sentence: str, settings: Mapping[str, Any], remark: str
) -> list[str]:
    """What stands before a step that is shown alone.

    The sentence and the seed, x_batch, and the letters and origins that the step uses.
    """
    heads = by_head(block.entries)
    axes = {a.rstrip("?") for e in block.entries for a in walk_axes(e, heads)}
    letters = [f"{axis} {words}" for axis, words in LETTERS.items() if axis in axes]
    used = {entry.origin for entry in block.entries}
    origins = [f"{o}: {words}" for o, words in ORIGINS.items() if o in used]
    lines = [sentence] + [remark] * bool(remark)
    if block.title.number > 5:
        shape = settings["B"], settings["T"], settings["d_in"]
        lines.append(
            f"x_batch {shape}, axes (B, T, d_in): token and position embeddings, added "
            "in step 5"
        )
    if letters:
        lines.append("Axes: " + ", ".join(letters))
    return [*lines, "; ".join(origins)] if origins else lines


@dataclass
class Map:
    """Every named tensor of the article's steps, with its step and shape."""

    rows: dict[tuple[str, ...], list[str]] = field(default_factory=dict)

    def add(self, block: Block) -> None:
        """Take in a step, if it is one of them."""
        if block.title.number not in range(14, 20):
            return
        heads = by_head(block.entries)
        for like in alike(Like(code, made) for code, made in statements(block)):
            if like.named:
                entry = like.named[-1]
                names = dict.fromkeys(stem(e) for e in [entry, *like.also])
                axes = f"({', '.join(walk_axes(entry, heads))})"
                shape = ("weight " if "." in entry.name else "") + str(entry.shape)
                what = (str(block.title.number), shape, axes, entry.origin)
                self.rows.setdefault(what, []).extend(names)

    def lines(self, width: int) -> list[str]:
        header = ("step", "tensor", "shape", "axes", "numbers")
        rows = tuple(
            (what[0], ", ".join(names), *what[1:]) for what, names in self.rows.items()
        )
        told = table(Table(header, rows), width, len(rows))
        return ["The way through, tensor by tensor", *told]


def closing(checks: int, held: int) -> str:
    """The last line of a run."""
    if checks == held:
        return f"All {checks} checks held."
    return f"{held} of {checks} checks held; {checks - held} did not."


def listing(titles: Sequence[Title]) -> Iterator[str]:
    """A step a line: number, title and the article's heading; a line for each more."""
    wide = max(len(title.title) for title in titles)
    for title in titles:
        for count, quoted in enumerate(title.headings or ("",)):
            number, name = ("", "") if count else (title.number, title.title)
            yield f"{number:>4}  {name.ljust(wide)}  {quoted}".rstrip()
