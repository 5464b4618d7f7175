"""The record as one self-contained page for the browser: `gptversion.py --page FILE`.

The page is the template page.html with the record put into it as JSON: the steps, every
tensor with the numbers that are drawn, and the maps that say where elements came from
(provenance.py). The script in the template draws the tables and follows the maps.
"""

import base64
import hashlib
import html
import json
import math
import os
import re
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steps.errors import UserError
from steps.layout import Drawing, Table
from steps.progress import Progress
from steps.walk.order import (
    Block,
    Title,
    Walk,
    WrongTurn,
    statements,
    titles,
)
from steps.walk.predict import lesson
from steps.walk.sheets import by_head, walk_axes
from steps.walk.text import LEGEND

if TYPE_CHECKING:
    from steps.debugger.result import Diagnosis
    from steps.walk.recorder import Entry

TEMPLATE = Path(__file__).with_name("page.html")
MARK = "<!-- multi-head attention, one shape at a time: made by gptversion.py -->"
# Indices drawn of an axis: all up to the first number, else the second one.
DRAWN = {"T": (16, 8), "H": (4, 3), "D": (8, 3)}
DRAWN_ELSE = (12, 6)
FOLLOWED = 200_000  # elements; numbers are not followed through larger tensors


def write_page(settings: Mapping[str, Any], path: str, force: bool = False) -> None:
    """Write the page of the whole walk to `path`, at once or not at all.

    Raises UserError for a place that cannot be written and, unless `force`, for a file
    that is there and is no page of ours.
    """
    check_target(path, force)
    save(Path(path), whole_page(settings))


def check_target(path: str, force: bool) -> None:
    """Refuse, before any work is done, what could not or should not be written."""
    target = Path(path)
    try:
        os.stat(target)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # such as a name that is too long
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"--page: cannot write {str(target)[:60]!r}: {reason}"
        ) from None
    if target.is_dir():
        raise UserError(
            f"--page: {str(target)!r} is a directory; give a file, as in page.html"
        )
    if target.exists() and not target.is_file():
        raise UserError(f"--page: {str(target)!r} is no ordinary file; give another")
    if not target.parent.is_dir():
        raise UserError(f"--page: there is no directory {str(target.parent)!r}")
    if target.exists() and not force:
        try:
            with target.open("rb") as file:
                ours = MARK.encode() in file.read(1000)
        except OSError as error:
            raise UserError(
                f"--page: cannot read {str(target)!r}: {error.strerror}"
            ) from None
        if not ours:
            raise UserError(
                f"--page: {str(target)!r} exists and is no page made by this program; "
                "give another name, or --force to overwrite it"
            )
    try:
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise unwritable(target, error) from None


def save(target: Path, text: str) -> None:
    """Write a file beside the target and move it there: never half a page."""
    made = ""
    try:
        handle, made = tempfile.mkstemp(
            dir=target.parent, prefix=".page-", suffix=".html"
        )
        with os.fdopen(handle, "wb") as file:  # a name may be no UTF-8
            file.write(text.encode(errors="backslashreplace"))
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(made, 0o666 & ~mask)  # mkstemp's files are the owner's alone
        os.replace(made, target)
        made = ""
    except OSError as error:
        raise unwritable(target, error) from None
    finally:
        if made:
            os.remove(made)


def unwritable(target: Path, error: OSError) -> UserError:
    return UserError(f"--page: cannot write {str(target)!r}: {error.strerror}")


def whole_page(settings: Mapping[str, Any]) -> str:
    """The page of every step there is."""
    numbers = [title.number for title in titles()]
    collector = Collector()
    with Progress() as progress:
        for block in Walk(settings, keep_calls=True).blocks(numbers):
            progress(f"step {block.title.number} of {numbers[-1]}")
            collector.block(block)
    data = collector.finish()
    data["turn"] = wrong_turn(settings, collector)
    data["text"] = settings["text"]
    data["legend"] = legend()
    return render(data, settings["text"])


def legend(report: bool = False) -> list[str | list[str]]:
    """The terminal's legend: sentences, and each term with its meaning.

    report: that of examined files, which has axes and stages of its own.
    """
    told: list[str | list[str]] = []
    for line in LEGEND.splitlines():
        term, _, meaning = line.strip().partition("  ")
        if line.startswith("  ") and meaning:
            told.append([term, meaning.strip()])
        elif told and isinstance(told[-1], str) and told[-1]:
            told[-1] += " " + line
        else:
            told.append(line)
    if report:
        from steps.debugger.result import AXES

        terms = ("computed", "rearranged", "copied")
        told = [part for part in told if part[0] in terms]
        told.append("Holds: the stage of attention whose numbers a tensor has. Axes:")
        told += [[letter, words] for letter, words in AXES.items()]
    return [part for part in told if part]


def render(data: Mapping[str, Any], title: str) -> str:
    """The template with a title and the data in it; its policy allows no more."""
    text = TEMPLATE.read_text(encoding="utf-8")
    style = text.split("<style>")[1].split("</style>")[0]
    script = text.split("<script>")[1].split("</script>")[0]
    policy = (
        f"default-src 'none'; style-src '{digest(style)}'; "
        f"script-src '{digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    numbers = json.dumps(
        data, allow_nan=False, separators=(",", ":"), ensure_ascii=False
    )
    for character in "<>&\u2028\u2029":  # nothing in the data can end its element
        numbers = numbers.replace(character, f"\\u{ord(character):04x}")
    numbers = numbers.encode(errors="backslashreplace").decode()
    parts = {
        "MARK": MARK,
        "POLICY": policy,
        "TITLE": html.escape(title),
        "DATA": numbers,
    }
    # At once: what is put in may look like a gap itself.
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda gap: parts[gap[1]], text)


def digest(text: str) -> str:
    """The source expression of a content security policy for an inline element."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


class Collector:
    """Gathers blocks into the page's data: steps, and tensors by number."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []
        self.nodes: list[dict[str, Any]] = []
        self.sizes: dict[str, int] = {}
        self.windows: list[list[list[int]]] = []  # per tensor, per axis: indices drawn
        self._numbers: dict[int, tuple[weakref.ref, int]] = {}  # by id, while it lives
        # Large tables: which rows were looked up.
        self._tables: dict[int, tuple[Any, set[int]]] = {}
        self._texts: dict[str, int] = {}  # each sentence of the questions once
        self._tokens: list[str] = []
        self._head_dim = 0
        self._by_head: set[int] = set()
        self._step = 0
        self._follow = self.followed = 0

    def block(self, block: Block) -> None:
        """Take in one step."""
        self._step = block.title.number
        if not self._tokens:  # step 24 has a sentence of its own
            self._tokens, self.followed = block.tokens, block.follow
        self._head_dim = block.head_dim
        self._by_head = by_head(block.entries)
        self._follow = block.follow
        step = {
            "n": block.title.number,
            "title": block.title.title,
            "D": block.head_dim,
            "tokens": block.tokens,
            "article": list(block.title.headings),
            "says": [part for part in block.says.split("\n\n") if part],
            "groups": self._groups(block),
            "wrong": [
                {
                    "says": turn.says,
                    "groups": self._groups(turn, wrong=True),
                    "error": turn.error,
                }
                for turn in block.wrong_turns
            ],
            "notes": [noted(note) for note in block.notes],
            "checks": [
                {"claim": check.claim, "holds": check.holds, "detail": check.detail}
                for check in block.checks
            ],
        }
        self.steps.append(step)

    def report(self, number: int, result: "Diagnosis") -> None:
        """Take in one examined file; its operations are the tensors."""
        sizes = [
            size
            for row in result.trace
            for axis, size in zip(row["axes"] or (), row["shape"], strict=False)
            if axis == "D"
        ]
        self._step, self._head_dim = number, sizes[0] if sizes else 0
        groups = []
        for (line, statement), rows in groupby(
            result.trace, key=lambda row: (row["line"], row["statement"])
        ):
            numbered = f"line {line}" if line else ""
            made = [self._traced(row) for row in rows]
            groups.append({"s": statement, "here": numbered, "t": made})
        verdict = result.verdict + (f", {result.kind}" if result.kind else "")
        said = [result.message]
        if result.verdict == "fault":
            said += [f"Line {result.line}: {result.statement}"]
            said += [f"It made: {result.got}"] if result.got else []
            said += [f"Right: {result.expected}"] if result.expected else []
        self.steps.append(
            {
                "n": number,
                "title": f"{Path(result.file).name}: {verdict}",
                "D": self._head_dim,
                "tokens": [],
                "article": [],
                "says": [part for part in (result.examined, *said) if part],
                "groups": groups,
                "wrong": [],
                "notes": result.notes,
                "checks": [],
            }
        )

    def _traced(self, row: Mapping[str, Any]) -> int:
        """Take in one row of a diagnosis."""
        shape = row["shape"]
        axes = (
            row["axes"]
            if row["axes"] and len(row["axes"]) == len(shape)
            else list(map(str, shape))
        )
        known = ["T" if axis == "S" else axis for axis in axes]
        node: dict[str, Any] = {
            "n": row["name"],
            "x": row["expression"],
            "f": row["function"].strip("_"),
            "step": self._step,
            "sh": shape,
            "ax": axes,
            **({} if known == axes else {"as": known}),
            "st": [],
            "off": 0,
            "c": 1,
            "or": row["origin"],
            "sw": "",
            "L": [],
            "stage": row["stage"] or "",
        }
        if row["first_wrong"]:
            node["bad"] = 2
        elif row["ok"] is False:
            node["bad"] = 1
        values = row.get("values")
        window = [
            some(range(size), *DRAWN.get(axis, DRAWN_ELSE))
            for axis, size in zip(known, shape, strict=True)
        ]
        self.windows.append(window)
        if values is not None and tuple(values.shape) == tuple(shape):
            node["v"] = picked(values.detach(), window)
            if values.dtype == _torch().bool:
                node["b"] = 1
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _groups(
        self, part: Block | WrongTurn, wrong: bool = False
    ) -> list[dict[str, Any]]:
        """The statements; `t` are the numbers of the tensors that each one made."""
        return [
            {
                "s": code.shown,
                "here": code.filled,
                "t": [self.add(entry, wrong) for entry in made],
                **({"deep": code.depth} if code.depth else {}),
            }
            for code, made in statements(part)
        ]

    def add(self, entry: "Entry", wrong: bool = False) -> int:
        """Take in one tensor; its number."""
        from steps.walk.provenance import links

        number, known = len(self.nodes), known_axes(entry, self._by_head)
        node: dict[str, Any] = {
            "n": entry.name,
            "x": "" if entry.name else entry.expression,
            "f": entry.function.strip("_"),
            "step": self._step,
            "sh": entry.shape,
            "ax": entry.axes,
            **({} if known == list(entry.axes) else {"as": known}),
            "st": entry.stride,
            "off": entry.offset,
            "c": int(entry.contiguous),
            "or": entry.origin,
            "sw": entry.shares_storage_with or "",
        }
        if wrong:
            node["wrong"] = 1
        elif entry.name:
            tips = lesson(entry)
            why = [self._text(text) for text in tips["why"]]
            node["q"] = [self._text(tips["hint"]), self._text(tips["rank"]), why]
        for axis, size in zip(entry.axes, entry.shape, strict=False):
            if not axis.isdigit():
                self.sizes.setdefault(axis, size)
        sources = self._sources(entry.call[1:]) if entry.call is not None else {}
        inside = is_inside(entry)
        if inside or entry.tensor.numel() > FOLLOWED:
            node["L"] = []
        else:
            node["L"] = links(
                entry, [(n, t) for n, t in sources.items() if self._follows(n)]
            )
        vague = list(self._sources(entry.inputs)) if inside else []
        if vague or any("loose" in link for link in node["L"]):
            node["in"] = [link["i"] for link in node["L"]] or vague
            node["L"] = []  # all that it was made of is traced, or none
        if entry.tensor.dtype == _torch().bool:
            node["b"] = 1
        dead = dead_elements(entry)
        if dead:
            node["dead"] = dead
        self.nodes.append(node)
        for link in node["L"]:
            self._keep_rows(link, number)
        self.windows.append(self._window(entry))
        if drawn(entry):
            node["v"] = picked(entry.numbers(), self.windows[number])
        if entry.axes[:1] == ("V",):
            self._tables[number] = (entry.tensor, set())
        self._numbers[id(entry.tensor)] = (weakref.ref(entry.tensor), number)
        return number

    def _text(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))

    def _sources(self, values: Any) -> dict[int, Any]:
        """The tensors among the values that are in the record, by number."""
        from steps.walk.recorder import tensors_in

        found: dict[int, Any] = {}
        for tensor in tensors_in(values):
            known = self._numbers.get(id(tensor))
            if known and known[0]() is tensor:
                found.setdefault(known[1], tensor)
        return found

    def _window(self, entry: "Entry") -> list[list[int]]:
        """The indices that are drawn, axis by axis."""
        window = []
        for axis, size in zip(
            known_axes(entry, self._by_head), entry.shape, strict=True
        ):
            D = self._head_dim
            if axis == "H*D" and D and size % D == 0:
                heads = some(range(size // D), *DRAWN["H"])
                within = some(range(D), *DRAWN["D"])
                window.append([h * D + d for h, d in product(heads, within)])
            else:
                keep = self._follow if axis == "T" else None
                window.append(
                    some(range(size), *DRAWN.get(axis, DRAWN_ELSE), keep=keep)
                )
        return window

    def _follows(self, number: int) -> bool:
        """Whether numbers are followed through a tensor; a table is cut to its rows."""
        return number in self._tables or math.prod(self.nodes[number]["sh"]) <= FOLLOWED

    def _keep_rows(self, link: dict[str, Any], number: int) -> None:
        """Note which rows of a table a look-up took: only those are on the page."""
        from steps.walk.provenance import straight

        if link["i"] not in self._tables:
            return
        width = self.nodes[link["i"]]["sh"][1]
        if "o" in link:  # one row, or rows evenly spaced: each for itself
            places = straight(link.pop("o"), link.pop("s"), self.nodes[number]["sh"])
            link |= {"step": 1, "rows": places[..., 0].flatten().tolist()}
        self._tables[link["i"]][1].update(row // width for row in link["rows"])

    def finish(self) -> dict[str, Any]:
        """The data, complete: large tables cut down to the rows that were looked up."""
        for number, (tensor, rows) in self._tables.items():
            node = self.nodes[number]
            if not rows:
                continue
            kept = sorted(rows)
            node["keep"] = kept
            place = {row: at for at, row in enumerate(kept)}
            width = node["sh"][1]
            window = [some(range(len(kept)), *DRAWN["T"]), self.windows[number][1]]
            self.windows[number] = window
            node["v"] = picked(tensor.detach()[kept], window)
            for other in self.nodes:
                for link in other["L"]:
                    if link["i"] == number:
                        link["rows"] = [place[r // width] * width for r in link["rows"]]
        for node, window in zip(self.nodes, self.windows, strict=True):
            shape = (
                [len(node["keep"]), *node["sh"][1:]] if "keep" in node else node["sh"]
            )
            if any(len(w) < size for w, size in zip(window, shape, strict=True)):
                node["w"] = window
        return {
            "tokens": self._tokens,
            "follow": self.followed,
            "sizes": self.sizes,
            "texts": list(self._texts),
            "steps": self.steps,
            "nodes": self.nodes,
        }


def noted(note: str | Table | Drawing) -> Any:
    """A note: a sentence, a table or a drawing."""
    if isinstance(note, Table):
        return {"header": note.header, "rows": some(note.rows, 24, 12)}
    return {"lines": note.lines} if isinstance(note, Drawing) else note


def write_report(
    results: Sequence["Diagnosis"], path: str, force: bool = False
) -> None:
    """Write the debugger's findings as a page: each file a section, the fault marked.

    Raises UserError as `write_page` does.
    """
    check_target(path, force)
    collector = Collector()
    for number, result in enumerate(results, 1):
        collector.report(number, result)
    data = {
        **collector.finish(),
        "turn": None,
        "report": 1,
        "legend": legend(report=True),
    }
    data["text"] = ", ".join(Path(result.file).name for result in results)
    save(Path(path), render(data, data["text"]))


def wrong_turn(settings: Mapping[str, Any], right: Collector) -> dict[str, Any] | None:
    """Steps 15 to 19 once more with the split done wrong: what every tensor would hold.

    Where step 15 reaches a shape by view and transpose, here view is asked for it at
    once; everything after it is the same code.
    """

    class Wrong(Walk):
        def call(self, title: Title, function: Callable, part: Any) -> dict[str, Any]:
            outputs = super().call(title, function, part)
            if title.number == 15 and isinstance(part, Block):
                for entry in part.entries:
                    if entry.name and entry.function == "transpose":
                        base = entry.tensor._base  # what was transposed
                        assert base is not None
                        turned = base.view(entry.shape)
                        outputs[entry.name] = entry.values = turned
                        entry.tensor = turned
            return outputs

    numbers = [title.number for title in titles() if 15 <= title.number <= 19]
    by_name: dict[tuple[int, str], list[int]] = {}
    for at, node in enumerate(right.nodes):
        if "wrong" not in node:
            by_name.setdefault((node["step"], node["n"] or node["x"]), []).append(at)
    swaps: dict[int, Any] = {}
    call, changed = "", False
    for block in Wrong(settings).blocks(numbers):
        asked = next((t.entries[0] for t in block.wrong_turns if t.entries), None)
        for entry in block.entries:
            places = by_name.get((block.title.number, entry.name or entry.expression))
            if not places:
                continue
            at = places.pop(0)
            node = right.nodes[at]
            if block.title.number > 15:
                reached = any(link["i"] in swaps for link in node["L"])
                if not reached and not moved(entry, node, right.windows[at]):
                    continue
                swap: dict[str, Any] = {"ax": lost(entry.axes)}
                if node["or"] != "computed":
                    swap["st"], swap["c"] = entry.stride, int(entry.contiguous)
            elif entry.name and entry.function == "transpose" and asked:
                swap = taken(entry, asked, right)
                call = swap["here"].partition(".")[2]
            else:
                continue
            if "v" in node:
                changed = changed or moved(entry, node, right.windows[at])
                swap["v"] = picked(entry.numbers(), right.windows[at])
            swaps[at] = swap
    return {"step": 15, "call": call, "swaps": swaps} if changed else None


def taken(entry: "Entry", asked: "Entry", right: Collector) -> dict[str, Any]:
    """What a split says of itself when it is done as step 15's wrong turn does it."""
    owner = entry.shares_storage_with or ""
    stride = list(entry.tensor.stride())
    swap: dict[str, Any] = {"f": asked.function, "ax": asked.axes, "st": stride, "c": 1}
    for key, text in (("s", asked.statement), ("here", asked.here)):
        text = text.replace(asked.shares_storage_with or "", owner)
        swap[key] = text.replace(asked.name, entry.name)
    swap["here"] = swap["here"].partition(" = ")[2]
    number = next(by_name_first(right, owner))
    swap["L"] = [{"i": number, "same": 1, "o": 0, "s": stride}]
    return swap


def moved(
    entry: "Entry", node: Mapping[str, Any], window: Sequence[Sequence[int]]
) -> bool:
    """Whether a tensor shows other numbers than its node."""
    return "v" in node and picked(entry.numbers(), window) != node["v"]


def lost(axes: Sequence[str]) -> list[str]:
    """The axes where no token has its own row any more."""
    return ["T?" if axis == "T" else axis for axis in axes]


def is_inside(entry: "Entry") -> bool:
    """Whether the recorded call is the last of several that the statement led to."""
    from steps.walk.recorder import tensors_in

    if entry.call is None:
        return False
    return len(entry.inputs) > len(list(tensors_in(entry.call[1:])))


def drawn(entry: "Entry") -> bool:
    """Whether numbers are drawn: of what has a name, and of scores and weights."""
    maps = ("matmul", "masked_fill", "softmax", "dropout")
    return bool(entry.name) or entry.function.strip("_") in maps


def by_name_first(collector: Collector, name: str | None) -> Iterator[int]:
    """The numbers of the tensors of a name, the first first."""
    return (at for at, node in enumerate(collector.nodes) if node["n"] == name)


def dead_elements(entry: "Entry") -> str:
    """Which elements carry nothing on, as bits in base 64; '' when all do.

    A weight that a mask or dropout set to exactly 0, or a score to minus infinity, has
    no part in what is computed from it.
    """
    makers = (
        "masked_fill",
        "masked_fill_",
        "softmax",
        "dropout",
        "mul",
        "__mul__",
        "tril",
        "triu",
    )
    keepers = ("div", "__truediv__", "true_divide")
    numbers = entry.numbers()
    if entry.function not in makers + keepers or not numbers.is_floating_point():
        return ""
    torch = _torch()
    dead = (numbers == 0) | (numbers == -torch.inf)
    if not bool(dead.any()) or dead.numel() > FOLLOWED:
        return ""
    # A mask is alike for every head: kept once.
    sheets = dead.reshape(-1, *dead.shape[-2:])
    bits = (sheets[0] if bool((sheets == sheets[:1]).all()) else dead).flatten().long()
    bits = torch.cat((bits, bits.new_zeros(-len(bits) % 8))).view(-1, 8)
    packed = (bits * torch.tensor([1, 2, 4, 8, 16, 32, 64, 128])).sum(dim=1)
    return base64.b64encode(bytes(packed.tolist())).decode()


def picked(numbers: Any, window: Sequence[Sequence[int]]) -> list[Any]:
    """The numbers inside the window, row by row, as they are to be read."""
    for axis, indices in enumerate(window):
        if len(indices) < numbers.shape[axis]:
            numbers = numbers.index_select(axis, _torch().tensor(list(indices)))
    return [readable(value) for value in numbers.flatten().tolist()]


def readable(value: Any) -> Any:
    """A number to four decimals; what JSON cannot hold as text."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int):
        return value if abs(value) < 2**53 else str(value)
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 1e5:
        return f"{value:.4g}"
    return float(f"{value:.4f}") + 0.0


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


def known_axes(entry: "Entry", heads: set[int]) -> list[str]:
    """The axes in the walk's own words, for the drawing."""
    axes = walk_axes(entry, heads)
    return (
        axes if len(axes) == len(entry.shape) else [str(size) for size in entry.shape]
    )


def _torch() -> Any:
    from steps.pytorch import torch

    return torch
