"""Blocks gathered into the page's data: steps, and tensors that know their sources.

A tensor of the page is what `document.tensor` says of it in `--json`, without "values",
and beside that, each only where there is something to say:

    "step"     its step's number
    "wrong"    1: a wrong turn made it
    "window"   axis by axis, the indices whose numbers are on the page (absent: all)
    "numbers"  those numbers, row by row: a list, or the bytes of float32 in base64
    "bool"     1: they are truth values
    "rows"     of a large table, the rows that are looked up: the only ones kept
    "dead"     bits in base64: elements that are exactly 0 or -inf and carry nothing on
    "links"    where its elements came from, see provenance.py; "i" is a tensor's place
    "formula"  how an element is worked out, see formula.py
    "read"     the sources of a call whose inside is not followed
    "ask"      texts for predicting its shape: [hint, rank, [axis, ...]], places in
               the page's "texts"
"""

import base64
import math
import weakref
from collections.abc import Sequence
from itertools import product
from typing import Any

from steps.pytorch import torch
from steps.walk import document
from steps.walk.formula import SUMMED, Formula, formula
from steps.walk.meaning import Meaning
from steps.walk.order import Block, WrongTurn, statements
from steps.walk.predict import lesson
from steps.walk.provenance import links, straight
from steps.walk.recorder import Entry, tensors_in
from steps.walk.sheets import by_head

# Indices kept of an axis: all up to the first number, else the second one.
KEPT = {"T": (16, 8), "H": (4, 3), "D": (8, 3)}
KEPT_ELSE = (12, 6)
FOLLOWED = 200_000  # elements; numbers are not followed through larger tensors
Window = list[list[int]]
# What the wrong turn changes of a tensor.
SWAPPED = (
    *("axes", "letters", "stride", "contiguous", "numbers", "links", "dead"),
    "function",
)


class Gathered:
    """The page's steps and tensors, taken in block by block."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []
        self.tensors: list[dict[str, Any]] = []
        self.sizes: dict[str, int] = {}
        self.windows: list[Window] = []
        self.texts: dict[str, int] = {}  # each sentence of the questions once
        self._meaning = Meaning()
        self._numbers: dict[int, tuple[weakref.ref, int]] = {}  # by id, while it lives
        # Large tables: which rows were looked up.
        self._tables: dict[int, tuple[torch.Tensor, set[int]]] = {}
        self._block: Block | None = None
        self._heads: set[int] = set()

    def block(self, block: Block) -> None:
        """Take in one step."""
        self._block, self._heads = block, by_head(block.entries)
        self.steps.append(
            {
                **document.words(block),
                "says": [part for part in block.says.split("\n\n") if part],
                "head_dim": block.head_dim,
                "tokens": block.tokens,
                "groups": self._groups(block),
                "wrong_turns": [
                    {
                        "name": turn.name,
                        "says": turn.says,
                        "why": turn.why,
                        "groups": self._groups(turn, wrong=True),
                        "error": turn.error,
                    }
                    for turn in block.wrong_turns
                ],
            }
        )

    def _groups(
        self, part: Block | WrongTurn, wrong: bool = False
    ) -> list[dict[str, Any]]:
        """The statements; "made" are the places of the tensors that each one made."""
        return [
            {
                "code": code.shown,
                "here": code.filled,
                "depth": code.depth,
                "made": [self.add(entry, wrong) for entry in made],
            }
            for code, made in statements(part)
        ]

    def add(self, entry: Entry, wrong: bool = False) -> int:
        """Take in one tensor; its place among them."""
        assert self._block is not None
        place = len(self.tensors)
        made = document.tensor(entry, self._meaning.of(entry), self._heads)
        made |= {"step": self._block.title.number, **({"wrong": 1} if wrong else {})}
        for axis, size in zip(entry.axes, entry.shape, strict=False):
            if not axis.isdigit():
                self.sizes.setdefault(axis, size)
        if entry.name and not wrong:
            tips = lesson(entry)
            why = [self._text(text) for text in tips["why"]]
            made["ask"] = [self._text(tips["hint"]), self._text(tips["rank"]), why]
        self.tensors.append(made)
        self.windows.append(self._window(entry, made["letters"]))
        if self._block.numbers:
            self._follow(entry, made, place)
        return place

    def _text(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts))

    def _follow(self, entry: Entry, made: dict[str, Any], place: int) -> None:
        """Add the tensor's numbers, and where they came from."""
        inside = is_inside(entry)
        sources = self._sources(entry.call[1:]) if entry.call is not None else {}
        followed = {n: t for n, t in sources.items() if self._follows(n)}
        if not inside and entry.tensor.numel() <= FOLLOWED:
            how = formula(entry, {id(t): n for n, t in followed.items()})
            found = reads(how, entry) if how else links(entry, list(followed.items()))
            if any("loose" in link for link in found):
                made["read"] = [link["i"] for link in found]
            elif found:
                made["links"] = found
            made |= {"formula": how} if how else {}
        elif inside and (vague := list(self._sources(entry.inputs))):
            made["read"] = vague
        if dead := dead_elements(entry):
            made["dead"] = dead
        for link in made.get("links", []):
            self._keep_rows(link, place)
        if entry.name or made["holds"] or "formula" in made:
            pack(made, entry.numbers(), self.windows[place])
        if entry.axes[:1] == ("V",):
            self._tables[place] = (entry.tensor, set())
        self._numbers[id(entry.tensor)] = (weakref.ref(entry.tensor), place)

    def _sources(self, values: Any) -> dict[int, torch.Tensor]:
        """The tensors among the values that are in the record, by place."""
        found: dict[int, torch.Tensor] = {}
        for tensor in tensors_in(values):
            known = self._numbers.get(id(tensor))
            if known and known[0]() is tensor:
                found.setdefault(known[1], tensor)
        return found

    def _window(self, entry: Entry, letters: Sequence[str]) -> Window:
        """The indices whose numbers are kept, axis by axis."""
        assert self._block is not None
        D, window = self._block.head_dim, []
        known = letters if len(letters) == len(entry.shape) else [""] * len(entry.shape)
        for axis, size in zip(known, entry.shape, strict=True):
            if axis == "H*D" and D and size % D == 0:
                heads = some(range(size // D), *KEPT["H"])
                within = some(range(D), *KEPT["D"])
                window.append([h * D + d for h, d in product(heads, within)])
            else:
                keep = self._block.follow if axis == "T" else None
                window.append(some(range(size), *KEPT.get(axis, KEPT_ELSE), keep=keep))
        return window

    def _follows(self, place: int) -> bool:
        """Whether numbers are followed through a tensor; a table is cut to its rows."""
        whole = math.prod(self.tensors[place]["shape"])
        return place in self._tables or whole <= FOLLOWED

    def _keep_rows(self, link: dict[str, Any], place: int) -> None:
        """Note which rows of a table a look-up took: only those are on the page."""
        if link["i"] not in self._tables:
            return
        width = self.tensors[link["i"]]["shape"][1]
        if "o" in link:  # one row, or rows evenly spaced: each for itself
            shape = self.tensors[place]["shape"]
            places = straight(link.pop("o"), link.pop("s"), shape)
            link |= {"step": 1, "rows": places[..., 0].flatten().tolist()}
        self._tables[link["i"]][1].update(row // width for row in link["rows"])

    def finish(self) -> None:
        """Complete the data: large tables cut down to the rows that were looked up."""
        for place, (tensor, rows) in self._tables.items():
            if not rows:
                continue
            made, kept = self.tensors[place], sorted(rows)
            at, width = {row: k for k, row in enumerate(kept)}, made["shape"][1]
            made["rows"] = kept
            self.windows[place][0] = some(range(len(kept)), *KEPT["T"])
            pack(made, tensor.detach()[kept], self.windows[place])
            for other in self.tensors:
                for link in other.get("links", []):
                    if link["i"] == place:
                        link["rows"] = [at[r // width] * width for r in link["rows"]]
        for made, window in zip(self.tensors, self.windows, strict=True):
            shape = made["shape"]
            if "rows" in made:
                shape = [len(made["rows"]), *shape[1:]]
            if any(len(w) < size for w, size in zip(window, shape, strict=True)):
                made["window"] = window


def reads(how: Formula, entry: Entry) -> list[dict[str, Any]]:
    """The links that a formula, which was proved, says of its sources."""
    maps = how.get("map")
    if maps is None:  # of softmax: all along one axis
        axes = range(entry.tensor.dim())
        maps = [[SUMMED if axis == how["axis"] else axis for axis in axes]]
    pairs = zip(how["of"], maps, strict=True)
    return [{"i": source, "d": axes} for source, axes in pairs]


def is_inside(entry: Entry) -> bool:
    """Whether the recorded call is the last of several that the statement led to."""
    if entry.call is None:
        return False
    return len(entry.inputs) > len(list(tensors_in(entry.call[1:])))


def dead_elements(entry: Entry) -> str:
    """Which elements carry nothing on, as bits in base64; '' when all do.

    A weight that a mask or dropout set to exactly 0, or a score to minus infinity, has
    no part in what is computed from it.
    """
    makers = ("masked_fill", "masked_fill_", "softmax", "dropout", "mul", "__mul__")
    shapers = ("tril", "triu", "div", "__truediv__", "true_divide")
    numbers = entry.numbers()
    if entry.function not in makers + shapers or not numbers.is_floating_point():
        return ""
    dead = (numbers == 0) | (numbers == -torch.inf)
    if not bool(dead.any()) or dead.numel() > FOLLOWED:
        return ""
    # A mask is alike for every head: kept once.
    sheets = dead.reshape(-1, *dead.shape[-2:])
    bits = (sheets[0] if bool((sheets == sheets[:1]).all()) else dead).flatten().long()
    bits = torch.cat((bits, bits.new_zeros(-len(bits) % 8))).view(-1, 8)
    packed = (bits * torch.tensor([1, 2, 4, 8, 16, 32, 64, 128])).sum(dim=1)
    return base64.b64encode(bytes(packed.tolist())).decode()


def pack(made: dict[str, Any], numbers: torch.Tensor, window: Window) -> None:
    """Put the numbers inside the window into `made`, exactly as they are."""
    for axis, indices in enumerate(window):
        if len(indices) < numbers.shape[axis]:
            numbers = numbers.index_select(axis, torch.tensor(indices))
    flat = numbers.detach().flatten()
    if flat.dtype == torch.float32:
        data = bytes(flat.contiguous().view(torch.uint8).tolist())
        made["numbers"] = base64.b64encode(data).decode()
    else:
        made["numbers"] = [readable(value) for value in flat.tolist()]
        made |= {"bool": 1} if flat.dtype == torch.bool else {}


def readable(value: Any) -> Any:
    """A number as JSON and the script hold it: beyond that, and not finite, as text."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value if abs(value) < 2**53 else str(value)
    return value if math.isfinite(value) else str(value)


def some(
    items: Sequence[Any], most: int, few: int, keep: int | None = None
) -> list[Any]:
    """All the items, or of more than `most` a few: first, last and one to keep."""
    if len(items) <= most:
        return list(items)
    last = max(1, few // 3)
    at = {*range(few - last), *range(len(items) - last, len(items))}
    if keep is not None and keep < len(items) and keep not in at:
        at = {*at, keep} - {few - last - 1}
    return [items[i] for i in sorted(at)]


def swaps(right: Gathered, wrong: Gathered) -> dict[int, dict[str, Any]]:
    """What the wrong turn's tensors say where they differ, by the right one's place."""
    places: dict[tuple, list[int]] = {}
    for at, made in enumerate(right.tensors):
        if "wrong" not in made:
            places.setdefault((made["step"], made["name"]), []).append(at)
    moved: dict[int, int] = {}
    found: dict[int, dict[str, Any]] = {}
    for at, made in enumerate(wrong.tensors):
        key = (made["step"], made["name"])
        if "wrong" not in made and places.get(key):
            moved[at] = places[key].pop(0)
    said = {
        at: {"code": group["code"], "here": group["here"]}
        for step in wrong.steps
        for group in step["groups"]
        for at in group["made"]
    }
    for at, place in moved.items():
        made, own = dict(wrong.tensors[at]), right.tensors[place]
        made["links"] = [
            {**link, "i": moved[link["i"]]}
            for link in made.get("links", [])
            if link["i"] in moved
        ]
        reached = any(link["i"] in found for link in made["links"])
        if own.get("numbers") == made.get("numbers") and not reached:
            continue
        if made["function"] == own["function"]:  # only later: no token has its row
            for name in ("axes", "letters"):
                made[name] = ["T?" if axis == "T" else axis for axis in made[name]]
        found[place] = {key: made[key] for key in SWAPPED if key in made} | said[at]
    return found
