"""Guess each shape before seeing it: `--predict`, and the questions of the page."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from steps.layout import squeeze, wrap
from steps.walk.order import Walk
from steps.walk.sheets import CLASS_AXES

if TYPE_CHECKING:
    from steps.walk.recorder import Entry

COUNTS = {
    "B": "sentences",
    "T": "tokens",
    "H": "heads",
    "D": "numbers of one head",
    "d_in": "input features",
    "H*D": "numbers of all heads",
    "d_out": "output features",
    "V": "ids of the vocabulary",
    "context_length": "positions there is room for",
}
LONGEST_ANSWER = 1000  # characters; what is longer is not typed by a reader
HELP = "Answer like 1,4,2,3 or B T H D; h for a hint, s to skip, q to quit."
AXES = "B counts sentences, T tokens, H heads, D numbers of one head."


def lesson(entry: "Entry") -> dict[str, Any]:
    """What to say about a wrong shape of this tensor without giving the right one away.

    {"hint": more to go on, "rank": the operation's rule, "why": axis by axis}.
    """
    axes = (
        entry.axes if len(entry.axes) == len(entry.shape) else ("",) * len(entry.shape)
    )
    counts = [COUNTS.get(CLASS_AXES.get(axis, axis)) for axis in axes]
    told = ["It counts " + c + "." if c else "" for c in counts]
    rule = rule_of(entry)
    known = [c for c in counts if c]
    rank = f"{rule} In order: {', '.join(known)}." if len(known) == len(axes) else rule
    if not axes:
        rank = rule + " One number has no axes: ()."
    return {"hint": rank, "rank": rule, "why": [text or rule for text in told]}


def rule_of(entry: "Entry") -> str:
    """What the operation does to shapes, in general."""
    name = entry.function.strip("_")
    if entry.function == "parameter":
        return (
            "nn.Linear(in, out) stores its weight with a row for every output."
            if "nn.Linear(" in entry.statement
            else "nn.Embedding(n, width) has a row for each of n ids."
            if "nn.Embedding(" in entry.statement
            else "A weight has the shape that its layer asks for."
        )
    if name in ("view", "reshape"):
        count = math.prod(entry.shape)
        return f"{entry.function} keeps all {count} elements and groups them anew."
    for names, rule in RULES:
        if name in names or name.removeprefix("r") in names:  # rsub, of 1 - x
            return rule
    if entry.origin == "rearranged":
        return "The numbers stay what they are, and are indexed anew."
    return (
        "Look at the statement: which axes go in, and which does it take away or add?"
    )


ELEMENT = (
    "Element by element: the shapes are the same, or broadcast from the last axis."
)
RULES = (
    (
        ("linear",),
        "A linear layer changes the last axis only, from in to out features.",
    ),
    (
        ("matmul", "bmm", "mm"),
        "A product of matrices works on the last two axes, (.., n, k) @ (.., k, m); "
        "others stay.",
    ),
    (("transpose", "permute", "swapaxes", "get", "t"), "A transpose exchanges axes."),
    (("softmax",), "softmax keeps the shape: every number becomes a weight."),
    (
        ("masked_fill", "dropout", "contiguous", "exp", "bool", "triu", "tril", "abs"),
        ELEMENT,
    ),
    (("add", "sub", "mul", "div", "truediv", "true_divide", "gt", "lt", "eq"), ELEMENT),
    (
        ("embedding",),
        "Looking up gives one row of the table for each id, its width at the end.",
    ),
    (("unsqueeze",), "unsqueeze adds an axis of size 1."),
    (("getitem",), "A plain index takes its axis away; a slice keeps it, shortened."),
    (
        ("sum", "mean", "amax", "max"),
        "The axis in dim is taken away, or left at 1 by keepdim.",
    ),
    (("cat",), "cat puts tensors end to end on one axis."),
    (("stack",), "stack makes a new axis, as long as there are tensors."),
)


@dataclass
class Score:
    """How the guessing went: names of tensors, and the operations that were missed."""

    asked: int = 0
    right: int = 0
    late: int = 0
    skipped: int = 0
    over: bool = False  # every question was put
    missed: dict[str, list[str]] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """The closing lines."""
        if not self.asked:
            yield "No shape was asked for." if self.over else "No shape was guessed."
            return
        yield (
            f"{self.right} of {self.asked} shapes right at the first try, "
            f"{self.late} later, {self.skipped} not at all."
        )
        if self.missed:
            yield "Operations to look at again:"
            for operation, names in self.missed.items():
                yield f"  {operation}: {', '.join(names[:6])}" + (
                    ", ..." if len(names) > 6 else ""
                )


def predict(
    settings: Mapping[str, Any], numbers: list[int], stdin: TextIO, stdout: TextIO
) -> int:
    """Ask for the shape of every named tensor of these steps; 0.

    Answers are lines of `stdin`. Its end, and an interrupt, end with the score.
    """
    score = Score()
    try:
        ask_all(settings, numbers, stdin, stdout, score)
    except (EOFError, KeyboardInterrupt):
        print(file=stdout)
    print(file=stdout)
    for line in score.lines():
        print("\n".join(wrap(line, rest="    ")), file=stdout)
    return 0


def ask_all(
    settings: Mapping[str, Any],
    numbers: list[int],
    stdin: TextIO,
    stdout: TextIO,
    score: Score,
) -> None:
    from steps.walk.text import heading

    print("Which shape does each statement make?\n" + HELP + "\n" + AXES, file=stdout)
    sizes: dict[str, int] = {}
    for block in Walk(settings).blocks(numbers):
        statement = ""
        named = [entry for entry in block.entries if entry.name]
        for entry in named:
            for axis, size in zip(entry.axes, entry.shape, strict=False):
                sizes[CLASS_AXES.get(axis, axis)] = sizes[axis] = size
        if named:
            print("\n" + heading(block.title), file=stdout)
        for entry in named:
            if entry.statement != statement:
                statement = entry.statement
                print("\n" + statement, file=stdout)
            if not Question(entry, sizes, score, stdin, stdout).ask():
                return
    score.over = True


@dataclass
class Question:
    """The shape of one tensor, asked until it is right or skipped."""

    entry: "Entry"
    sizes: Mapping[str, int]  # of the axes seen so far, by their letters
    score: Score
    stdin: TextIO
    stdout: TextIO
    tries: int = 0

    def ask(self) -> bool:
        """Put the question; False to quit."""
        tips, answered = lesson(self.entry), False
        while not answered:
            answer = self.read()
            word = answer.lower()
            if word in ("q", "quit"):
                return False
            if word in ("h", "hint", "?"):
                self.miss()
                say(tips["hint"], self.stdout)
            elif answered := word in ("s", "skip"):
                self.miss()
                self.tell("It is")
            else:
                answered = self.judge(answer, tips)
        return True

    def read(self) -> str:
        """A line of the reader's; EOFError where there is no more."""
        prompt = f"  shape of {self.entry.name}? "
        print(prompt, end="", file=self.stdout, flush=True)
        line = self.stdin.readline(LONGEST_ANSWER)
        if not line or len(line) == LONGEST_ANSWER:
            raise EOFError
        if not self.stdin.isatty():  # nobody has typed it on the screen
            print(line.strip(), file=self.stdout)
        return line.strip()

    def judge(self, answer: str, tips: Mapping[str, Any]) -> bool:
        """Whether the answer is the right shape; what is wrong with it is said."""
        guess, problem = read_shape(answer, self.entry, self.sizes)
        if guess is None:
            say(problem, self.stdout)
            return False
        if guess != self.entry.shape:
            self.miss()
            say(difference(guess, self.entry, tips), self.stdout)
            return False
        self.count()
        self.score.skipped -= 1
        if self.tries == 1:
            self.score.right += 1
        else:
            self.score.late += 1
        self.tell("Right:")
        return True

    def count(self) -> None:
        """The reader has taken the question up, or up again."""
        self.tries += 1
        if self.tries == 1:
            self.score.asked += 1
            self.score.skipped += 1  # until it is answered

    def miss(self) -> None:
        """A try that was not right: the operation is to be looked at again."""
        self.count()
        operation = self.entry.function.strip("_")
        names = self.score.missed.setdefault(operation, [])
        if self.entry.name not in names:
            names.append(self.entry.name)

    def tell(self, before: str) -> None:
        """The right shape."""
        axes = f"  axes ({', '.join(self.entry.axes)})" if self.entry.axes else ""
        shown = f"{self.entry.shape}{axes}, {self.entry.origin}"
        print(f"  {before} {shown}", file=self.stdout)


def say(text: str, stdout: TextIO) -> None:
    print("\n".join(wrap(text, "  ")), file=stdout)


def read_shape(
    answer: str, entry: "Entry", sizes: Mapping[str, int]
) -> tuple[tuple[int, ...] | None, str]:
    """The shape that was typed, or None and what is wrong with the typing.

    `(1, 4, 2, 3)`, `1,4,2,3`, `1 4 2 3` and `B T H D` are the same; `()` has no axes.
    """
    bare = re.sub(r"^torch\.Size", "", answer.strip()).strip("()[] \t")
    if not bare:
        if answer.strip() in ("()", "[]"):
            return (), ""
        return None, HELP
    shape = []
    for position, word in enumerate(
        re.split(r"[\s,]+", re.sub(r"\s*\*\s*", "*", bare).strip(", "))
    ):
        if position < len(entry.axes) and word == entry.axes[position]:
            shape.append(entry.shape[position])
            continue
        size = 1
        for part in word.split("*"):
            if re.fullmatch(r"[0-9]{1,9}", part):
                size *= int(part)
            elif part in sizes:
                size *= sizes[part]
            else:
                known = ", ".join(name for name in sizes if name in COUNTS)
                odd = squeeze(word, 40)
                problem = f"{odd!r} is no size and no axis seen so far ({known})."
                return None, f"{problem} {HELP}"
        shape.append(size)
    return tuple(shape), ""


def difference(guess: tuple[int, ...], entry: "Entry", tips: Mapping[str, Any]) -> str:
    """Which axis of the guess differs and why, without the right size."""
    if len(guess) != len(entry.shape):
        return f"The number of axes differs: you have {len(guess)}. {tips['rank']}"
    at = next(
        k for k, (a, b) in enumerate(zip(guess, entry.shape, strict=True)) if a != b
    )
    more, total = "", math.prod(guess)
    if entry.function in ("view", "reshape") and total != entry.tensor.numel():
        more = (
            f" Your shape has {total} elements; {entry.function} keeps all "
            f"{math.prod(entry.shape)}."
        )
    why = tips["why"][at]
    return f"Axis {at} (counted from 0) differs: you have {guess[at]}. {why}{more}"
