"""The steps in order: what each is called, what it needs, and how it is run.

A step is two files. `steps/stepN.py` is what the article does:

    a docstring     "Step N: title", the article's headings, what it is about, and
                    where its claims are
    step(...)       pure: named tensors in, and out goes every name it made
    wrong_...(...)  a wrong turn, run for real; its docstring is a title and, after an
                    empty line, why it is wrong

and `steps/claims/stepN.py` is what is said of it:

    look(...)       the sentence that says what to hold in view
    notes(...)      yields (name, sentence, table or drawing), computed from the
                    tensors: what is said of the statement, or of the wrong turn, of
                    that name; "" is the step as a whole, and "path" stands in place
                    of the table of its statements
    checks(...)     yields (claim, outcome), outcomes from `steps.compare`
    INSTEAD         what each wrong turn's result is held against, by name
    SHOWN           the names whose numbers are shown, where not all are
    BRIEF           the names of which the followed token's rows are enough

Each function's signature is its list of needs: settings, sizes, and whatever earlier
steps made, by name.
"""

import importlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from steps.errors import shortage
from steps.layout import Drawing, Table
from steps.walk.source import Source, fill_in, trace_of

if TYPE_CHECKING:
    from steps.walk.recorder import Entry
    from steps.walk.turns import Against

STEPS = Path(__file__).parent.parent
SETTINGS = ("text", "B", "T", "d_in", "H", "D", "dropout", "seed", "follow")


@dataclass(frozen=True)
class Title:
    """A step's place in the walk, known without running it."""

    number: int
    title: str
    headings: tuple[str, ...]  # of the article; () where it has none

    @property
    def module(self) -> str:
        return f"steps.step{self.number}"

    @property
    def source(self) -> Source:
        return Source.of(str(STEPS / f"step{self.number}.py"))

    @property
    def claims(self) -> str:
        return f"steps.claims.step{self.number}"

    def takes(self, shown: bool) -> set[str]:
        """All that the step needs to run and, where it is shown, its claims too."""
        module = importlib.import_module(self.module)
        functions = [module.step]
        if shown:
            claims = importlib.import_module(self.claims)
            functions += [*wrong_turns(module), claims.look, claims.notes]
            functions += [claims.checks]
        return {need for function in functions for need in needs(function)}

    def makes(self) -> set[str]:
        """All that the step makes for later ones."""
        return set(self.source.made_by("step"))


@dataclass(frozen=True)
class Note:
    """Something said of a step: of a statement, of a wrong turn, or of it all ("")."""

    about: str
    says: str | Table | Drawing


@dataclass(frozen=True)
class Check:
    """A claim that was executed."""

    claim: str
    holds: bool
    detail: str


@dataclass(frozen=True)
class Code:
    """A statement of a step's function, whether it makes tensors or not."""

    line: int
    depth: int  # how many blocks it stands in
    text: str  # of a block, its head
    here: str  # with this run's sizes in place of their names

    @property
    def shown(self) -> str:
        """The statement; a block's head with this run's sizes: with seeded(123)."""
        return self.here if self.text.endswith(":") else self.text

    @property
    def filled(self) -> str:
        """What the sizes make of the right side; "" where that is shown already."""
        if self.here == self.shown:
            return ""
        return self.here.partition(" = ")[2] or self.here


@dataclass
class WrongTurn:
    """A wrong turn that was taken for real: what it made, or the error it raised."""

    name: str  # of its function
    says: str
    why: str
    code: list[Code] = field(default_factory=list)  # up to the one that raised
    entries: list["Entry"] = field(default_factory=list)
    error: str = ""
    against: list["Against"] = field(default_factory=list)

    @property
    def statement(self) -> str:
        """The one that raised, if one did."""
        return self.code[-1].text if self.error else ""


@dataclass
class Block:
    """Everything that one step has to show."""

    title: Title
    says: str
    look: str = ""
    shown: tuple[str, ...] | None = None  # what has its numbers told; None: all
    brief: tuple[str, ...] = ()  # of which only the followed token's rows are shown
    tokens: list[str] = field(default_factory=list)  # the inputs, one a position
    head_dim: int = 0  # numbers a head
    follow: int = 0  # the position of the token that is followed
    numbers: bool = (
        True  # False: the tensors are too large to show more than their shapes
    )
    code: list[Code] = field(default_factory=list)
    entries: list["Entry"] = field(default_factory=list)
    wrong_turns: list[WrongTurn] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    def said_of(self, name: str) -> list[str | Table | Drawing]:
        """What is said of a name."""
        return [note.says for note in self.notes if note.about == name]


def statements(part: Block | WrongTurn) -> Iterator[tuple[Code, list["Entry"]]]:
    """Every statement in the order of the run, and the tensors that it made, if any."""
    todo = list(part.code)
    for statement, group in groupby(part.entries, key=lambda entry: entry.statement):
        made = list(group)
        depth = 0
        while todo and todo[0].line <= made[0].outer:
            code = todo.pop(0)
            if code.text == statement:
                depth = code.depth
                break
            yield code, []
        yield Code(made[0].place.line, depth, statement, made[-1].here), made
    for code in todo:
        yield code, []


def titles() -> list[Title]:
    """Every step there is, in order, read from the files' docstrings."""
    numbers = sorted(
        int(p.stem[4:]) for p in STEPS.glob("step*.py") if p.stem[4:].isdigit()
    )
    sources = {number: Source.of(str(STEPS / f"step{number}.py")) for number in numbers}
    return [title_of(n, s.doc()) for n, s in sources.items()]


def title_of(number: int, doc: str) -> Title:
    """The title and the article's headings from a step's docstring."""
    first, _, rest = doc.partition("\n")
    headings = re.match(r"\s*Article: (.*?)(?:\n\n|$)", rest, re.DOTALL)
    quoted = (
        tuple(re.findall(r'"([^"]+)"', " ".join(headings[1].split())))
        if headings
        else ()
    )
    return Title(number, first.split(":", 1)[1].strip(), quoted)


def says_of(doc: str) -> str:
    """The rest of the docstring: what the reader is told first."""
    parts = [" ".join(part.split()) for part in doc.split("\n\n")[1:]]
    apart = ("Article: ", "What is said of it")
    return "\n\n".join(part for part in parts if not part.startswith(apart))


def wrong_turns(module: ModuleType) -> list[Callable]:
    return [f for name, f in vars(module).items() if name.startswith("wrong_")]


def needs(function: Callable) -> tuple[str, ...]:
    code = function.__code__
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


class Walk:
    """One run through the steps with given settings.

    settings: a value for each of SETTINGS.
    keep_calls: record each call's function and arguments too (more memory).
    """

    def __init__(self, settings: Mapping[str, Any], keep_calls: bool = False) -> None:
        self._keep_calls = keep_calls
        self.known: dict[str, Any] = dict(settings)
        self.titles = titles()

    def blocks(self, numbers: list[int]) -> Iterator[Block]:
        """The blocks of these steps; what they need from earlier ones is replayed."""
        run = self._with_needs(set(numbers))
        for at, title in enumerate(run):
            block = self._run(title, show=title.number in numbers)
            if title.number in numbers:
                yield block
            later = run[at + 1 :]
            self._forget({n for t in later for n in t.takes(t.number in numbers)})

    def _with_needs(self, wanted: set[int]) -> list[Title]:
        """The wanted steps and the earlier ones that make what they take, in order."""
        run: list[Title] = []
        missing = {"inputs"}  # the labels of the rows
        for title in reversed(self.titles):
            shown = title.number in wanted
            if shown or (run and title.makes() & missing):
                missing = (missing - title.makes()) | title.takes(shown)
                run.insert(0, title)
        return run

    def _axes(self, title: Title) -> dict[str, tuple[str, ...]]:
        """The axes of what the steps up to this one make, as their comments say."""
        found: dict[str, tuple[str, ...]] = {}
        for earlier in self.titles:
            if earlier.number <= title.number:
                found.update(earlier.source.axes)
        return found

    def _forget(self, needed: set[str]) -> None:
        """Drop tensors that no later step takes, so that long texts fit in memory."""
        used = {*SETTINGS, "inputs", *needed}
        for name in [name for name in self.known if name not in used]:
            del self.known[name]

    def _run(self, title: Title, show: bool) -> Block:
        module = importlib.import_module(title.module)
        block = Block(title, says_of(title.source.doc()))
        self.known.update(self.call(title, module.step, block if show else None))
        block.tokens = list(self.known.get("inputs", []))
        block.follow, block.head_dim = self.known["follow"], self.known["D"]
        # Tensors that are not of the walk's sizes.
        if getattr(module, "SHAPES_ONLY", False):
            block.numbers, block.tokens, block.head_dim = False, [], 0
        if not show:
            return block
        self._claim(title, module, block)
        return block

    def _claim(self, title: Title, module: ModuleType, block: Block) -> None:
        """Take the step's wrong turns, and run what is said of it and checked."""
        local = {**self.known, "record": block.entries}
        claims = importlib.import_module(title.claims)
        for function in wrong_turns(module):
            parts = title.source.doc(function.__name__).split("\n\n")
            says, why = (" ".join(part.split()) for part in (*parts, "")[:2])
            turn = WrongTurn(function.__name__, says, why)
            made = self.call(title, function, turn)
            local.update(made)
            if not turn.error:
                turn.against = list(self._against(title, claims, made, local))
            block.wrong_turns.append(turn)

        def told(function: Callable) -> Any:
            return function(*(local[need] for need in needs(function)))

        block.look = told(claims.look)
        block.shown = getattr(claims, "SHOWN", None)
        block.brief = getattr(claims, "BRIEF", ())
        known = {"", "path", *self.known, *local, *(e.name for e in block.entries)}
        known.update(turn.name for turn in block.wrong_turns)
        for about, says in told(claims.notes):
            assert about in known, f"{title.claims}: nothing is called {about}"
            block.notes.append(Note(about, says))
        for claim, outcome in told(claims.checks):
            detail = "" if outcome.holds else outcome.detail
            block.checks.append(Check(claim, outcome.holds, detail))

    def _against(
        self,
        title: Title,
        claims: ModuleType,
        made: Mapping[str, Any],
        local: Mapping[str, Any],
    ) -> Iterator["Against"]:
        """The results of a wrong turn, each beside the right one."""
        pairs = getattr(claims, "INSTEAD", {})
        for name in made:
            if name in pairs:
                from steps.walk.turns import against

                right, axes = pairs[name], self._axes(title).get(pairs[name], ())
                yield against(name, local[name], right, local[right], axes, local)

    def call(
        self, title: Title, function: Callable, part: Block | WrongTurn | None
    ) -> dict[str, Any]:
        """Run one function of a step, recorded where it is part of what is shown.

        Returns what it made, by name; nothing where a wrong turn raised.
        """
        source, name = title.source, function.__name__
        arguments = {need: self.known[need] for need in needs(function)}
        recorder = nullcontext() if part is None else self.recorder(title, arguments)
        raises = (RuntimeError, ValueError) if isinstance(part, WrongTurn) else ()
        outputs: dict[str, Any] = {}
        at, seen = sys.maxsize, vars(sys.modules[title.module]) | arguments
        with no_grad(), recorder:
            try:
                result = function(**arguments) or {}
                names = (n for n in source.made_by(name) if n not in SETTINGS)
                outputs = {name: result[name] for name in names if name in result}
            except raises as error:
                assert isinstance(part, WrongTurn)
                if shortage(error):
                    raise  # that is nothing to learn from
                reason = str(error).strip().partition("\n")[0]
                part.error = f"{type(error).__name__}: {reason}"
                place = trace_of(error, source.file)
                assert place is not None
                at, seen = place.tb_lineno, seen | place.tb_frame.f_locals
        if part is not None:
            part.code = list(code_of(source, name, at, seen | outputs))
            if not isinstance(recorder, nullcontext):
                recorder.name_outputs(source.file, name, outputs)
                part.entries = recorder.entries
        return outputs

    def recorder(self, title: Title, arguments: Mapping[str, Any]) -> Any:
        """What watches a step's function run: a `Recorder`, once there is torch."""
        if not uses_torch():
            return nullcontext()
        from steps.walk.recorder import Recorder

        sizes = {k: v for k, v in self.known.items() if type(v) is int}
        also = getattr(sys.modules[title.module], "ALSO_RECORD", ())
        files = [title.source.file, *also]
        return Recorder(files, arguments, self._axes(title), sizes, self._keep_calls)


def code_of(
    source: Source, function: str, end: int, seen: Mapping[str, Any]
) -> Iterator[Code]:
    """The statements of a function, up to the one at line `end`."""
    numbers = {k: v for k, v in seen.items() if type(v) in (int, float)}
    for depth, statement in source.statements(function):
        if statement.node.lineno <= end:
            here = fill_in(statement.text, numbers)
            name, _, value = here.partition(" = ")
            if value.isdigit():  # a size that the function works out and keeps
                numbers[name] = int(value)
            yield Code(statement.node.lineno, depth, statement.text, here)


def uses_torch() -> bool:
    """Steps 1 and 2 are plain lists: when they run, nothing has imported torch yet."""
    return "torch" in sys.modules


def no_grad() -> Any:
    """Nothing is trained, so no graph is kept."""
    return sys.modules["torch"].no_grad() if uses_torch() else nullcontext()


class WrongWalk(Walk):
    """The walk with step 15's wrong turn taken, for the queries, keys and values alike.

    Where step 15 reaches a shape by view and transpose, here view is asked for it at
    once; every later step is the same code. The blocks say what was done.
    """

    def call(
        self, title: Title, function: Callable, part: Block | WrongTurn | None
    ) -> dict[str, Any]:
        outputs = super().call(title, function, part)
        for name, tensor in outputs.items():
            base = getattr(tensor, "_base", None)
            if title.number == 15 and base is not None and not tensor.is_contiguous():
                outputs[name] = base.view(tensor.shape)
        return outputs

    def _run(self, title: Title, show: bool) -> Block:
        block = super()._run(title, show)
        asked = next((t.entries[0] for t in block.wrong_turns if t.entries), None)
        if title.number == 15 and show and asked is not None:
            for entry in block.entries:
                if entry.name and self.known[entry.name] is not entry.tensor:
                    turn_wrong(entry, self.known[entry.name], asked)
        return block


def turn_wrong(entry: "Entry", tensor: Any, asked: "Entry") -> None:
    """Let an entry say that its tensor was made as the wrong turn makes its own."""
    owner, base = asked.shares_storage_with or "", tensor._base
    mine = entry.shares_storage_with or ""
    entry.statement = asked.statement.replace(owner, mine).replace(
        asked.name, entry.name
    )
    entry.expression, entry.function = asked.expression, asked.function
    entry.sizes, entry.axes = asked.sizes, asked.axes
    entry.tensor, entry.values = tensor, tensor.detach().clone()
    entry.stride, entry.offset = tuple(tensor.stride()), int(tensor.storage_offset())
    entry.contiguous = tensor.is_contiguous()
    if entry.call is not None:
        entry.call = (type(base).view, (base, *tensor.shape), {})
        entry.inputs = (base,)
