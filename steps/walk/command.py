"""The command line of a step: the flags that all steps take, and what they do."""

import argparse
import contextlib
import gc
import io
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NoReturn

from steps import tokens
from steps.commandline import (
    Parser,
    add_quiet,
    answers,
    name_of_program,
    quietly,
    typed,
    whole,
)
from steps.errors import UserError, complain, room_for
from steps.progress import quiet

SENTENCE = "The river bank was muddy"
FOLLOWED = "bank"
MOST_SCORES = 2**26  # elements of one (H, T, T) tensor: 256 MB in float32


def probability(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(
            f"takes a number from 0 to below 1, not {text!r}"
        )
    return value


def parser(prog: str, description: str) -> Parser:
    """The flags that every step takes, with the demo's sizes as defaults."""
    made = Parser(prog=prog, description=description, allow_abbrev=False)
    add = made.add_argument
    add(
        "--text",
        type=typed,
        default=SENTENCE,
        help="the sentence; its last token is only a target",
    )
    add(
        "--d-in",
        type=whole(1, 4096),
        default=4,
        metavar="N",
        help="input features a token",
    )
    add("--heads", type=whole(1, 256), default=2, metavar="N", help="heads (H)")
    add(
        "--head-dim",
        type=whole(1, 1024),
        default=3,
        metavar="N",
        help="features a head (D)",
    )
    add(
        "--dropout",
        type=probability,
        default=0.5,
        metavar="P",
        help="attention dropout",
    )
    add(
        "--seed",
        type=whole(0, 2**63 - 1),
        default=123,
        metavar="N",
        help="of every draw",
    )
    add(
        "--follow",
        type=typed,
        metavar="TOKEN",
        help="the input token to follow (default: bank, else the last)",
    )
    add_quiet(made)
    return made


def add_all(made: argparse.ArgumentParser) -> None:
    made.add_argument("--all", action="store_true", help="every table of every tensor")


def settings(flags: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """The walk's settings from the flags, and a remark for the reader or ''.

    Raises UserError, before anything is printed, for what no step could show.
    """
    if not flags.text.strip():
        raise UserError("--text: is blank; give a sentence of two tokens or more")
    try:
        flags.text.encode()
    except UnicodeEncodeError:
        raise UserError("--text: has bytes that are not UTF-8") from None
    ids = tokens.encode(flags.text)
    if len(ids) < 2:
        raise UserError(
            f"--text: {flags.text!r} is one token; give two or more, one to read and "
            "one to predict"
        )
    width = flags.heads * flags.head_dim
    if width > 4096:
        raise UserError(f"--heads x --head-dim: is {width}; at most 4096")
    length = len(ids) - 1
    most = int((MOST_SCORES / flags.heads) ** 0.5)
    if length > most:
        raise UserError(
            f"--text: has {length + 1} tokens; with --heads {flags.heads} at most "
            f"{most + 1}"
        )
    labels = [
        tokens.label(tokens.piece_of(flags.text, token_id)) for token_id in ids[:-1]
    ]
    follow, remark = followed(flags.follow, labels, flags.text, ids[-1])
    values = {
        "text": flags.text,
        "B": 1,
        "T": length,
        "d_in": flags.d_in,
        "H": flags.heads,
        "D": flags.head_dim,
        "dropout": flags.dropout,
        "seed": flags.seed,
        "follow": follow,
    }
    return values, remark


def room(values: dict[str, Any]) -> AbstractContextManager[None]:
    """Where the memory does not do, say what the walk of these settings asks for."""
    T, H = values["T"], values["H"]
    scores = 4 * H * T * T >> 20  # MB, in float32
    asked, less = f"{T + 1:,} tokens and {H} heads", "torch alone takes half a gigabyte"
    if scores:
        asked += f": one (H, T, T) tensor of scores takes {scores:,} MB"
        less = "a shorter --text takes less"
    return room_for(asked, less)


def followed(
    wanted: str | None, labels: list[str], text: str, last: int
) -> tuple[int, str]:
    """The position of the token to follow, and a remark where there are more of it."""
    if wanted is None:
        wanted = FOLLOWED if FOLLOWED in labels else labels[-1]
    wanted = wanted.strip() or wanted
    if wanted not in labels:
        target = tokens.label(tokens.piece_of(text, last))
        why = (
            "is only a target, never an input"
            if wanted == target
            else "is not in the text"
        )
        known = list(dict.fromkeys(labels))
        shown = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
        raise UserError(f"--follow: {wanted!r} {why}; one of: {shown}")
    position, count = labels.index(wanted), labels.count(wanted)
    if count == 1:
        return position, ""
    return (
        position,
        f"{wanted!r} occurs {count} times; the first, at index {position}, is "
        "followed.",
    )


def colour_wanted() -> bool:
    """Colour on a terminal that shows it, unless NO_COLOR asks for none."""
    unwanted = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not unwanted and os.name != "nt"


def note_other_torch() -> None:
    """Say once, on standard error, when the numbers may not be the published ones."""
    if "torch" in sys.modules:
        from steps.pytorch import PUBLISHED_TORCH, torch

        if torch.__version__.partition("+")[0] != PUBLISHED_TORCH:
            complain(
                f"note: the published numbers are from torch {PUBLISHED_TORCH}; "
                f"this is {torch.__version__}"
            )


def numbers_from(seed: int) -> str:
    """Where the numbers of a run come from."""
    from steps.pytorch import torch

    return f"seed {seed}, torch {torch.__version__}, CPU, float32"


def width_of_output() -> int:
    """The terminal's columns, from 80 to 120; WIDTH where it is no terminal."""
    from steps.layout import WIDTH

    if not sys.stdout.isatty():
        return WIDTH
    return min(max(shutil.get_terminal_size((WIDTH, 24)).columns, 80), 120)


def show(
    numbers: list[int], values: dict[str, Any], everything: bool, remark: str
) -> int:
    """Print the blocks of these steps, a title before and a map after; 1 when a check
    failed.

    everything: all tables, of --all.
    """
    from steps import pytorch  # noqa: F401  where it is missing, nothing is printed

    if name_of_program() == "gptversion.py":  # the process is ours
        gc.freeze()  # what the imports made stays: no search of it for garbage
    from steps.layout import squeeze
    from steps.walk.order import Walk
    from steps.walk.text import LEGEND, Map, Text, closing

    text = Text(colour_wanted(), width_of_output(), everything)
    title = "Multi-head attention, one shape at a time: "
    quoted = tokens.shown(values["text"].encode())
    print(title + squeeze(quoted, text.width - len(title)))
    print(numbers_from(values["seed"]) + f"\n{remark}" * bool(remark) + "\n")
    print("\n".join(text.lines(LEGEND)))
    made = held = 0
    walked = Map()
    for block in Walk(values).blocks(numbers):
        print("\n" + text.block(block), end="")
        walked.add(block)
        made += len(block.checks)
        held += sum(check.holds for check in block.checks)
    if walked.rows:
        print("\n" + "\n".join(walked.lines(text.width)))
    print("\n" + closing(made, held))
    note_other_torch()
    return 0 if made == held else 1


def show_one(number: int, values: dict[str, Any], everything: bool, remark: str) -> int:
    """Print one step, as in the whole run, after a few lines that it needs alone."""
    if number > 2:  # the first two are plain lists
        from steps import pytorch  # noqa: F401
    if name_of_program() == f"steps.step{number}":  # as above
        gc.freeze()
    from steps.walk.order import Walk
    from steps.walk.text import Text, before

    text = Text(colour_wanted(), width_of_output(), everything)
    (block,) = Walk(values).blocks([number])
    quoted = tokens.shown(values["text"].encode())
    seed = f"seed {values['seed']}"
    if "torch" in sys.modules:
        seed = numbers_from(values["seed"])
    print("\n".join(text.lines(before(block, f"{quoted}, {seed}", values, remark))))
    print("\n" + text.block(block), end="")
    note_other_torch()
    return 0 if all(check.holds for check in block.checks) else 1


def steps_of(text: str) -> list[int]:
    """The numbers in a list of steps such as 14-20 or 14-16,20."""
    from steps.walk.order import titles

    known = [title.number for title in titles()]
    picked: set[int] = set()
    for part in text.split(","):
        low, dash, high = (piece.strip() for piece in part.partition("-"))
        ends = [low, high if dash else low]
        wanted: list[int] = []
        if all(end.isascii() and end.isdigit() and len(end) < 5 for end in ends):
            wanted = list(range(int(ends[0]), int(ends[1]) + 1))
        if not wanted or not {*wanted} <= {*known}:
            raise argparse.ArgumentTypeError(
                f"takes steps from {known[0]} to {known[-1]}, such as 14-20 or "
                f"14-16,20, not {text!r}"
            )
        picked.update(wanted)
    return sorted(picked)


def step(file: str, argv: Sequence[str] | None = None, more: Any = None) -> NoReturn:
    """`python -m steps.stepN`: that step's block, as in the full run.

    more: a module with flags of this step alone. `add_flags(parser, form)` adds them,
    those that stand for another form of the step to the group `form`, and
    `run(flags, values)` does what they ask and gives the exit code, None for the block.
    """
    number = int(os.path.basename(file)[len("step") : -len(".py")])

    def run() -> int:
        made = parser(f"steps.step{number}", f"Step {number} of the walk.")
        form = made.add_mutually_exclusive_group()
        form.add_argument(
            "--predict", action="store_true", help="guess the shapes first"
        )
        add_all(made)
        if more is not None:
            more.add_flags(made, form)
        flags = made.parse_args(argv)
        values, remark = settings(flags)
        with room(values), quiet(flags.quiet):
            if flags.predict:
                from steps.walk.predict import predict

                return predict(values, [number], answers(), sys.stdout)
            code = more.run(flags, values) if more is not None else None
            if code is None:
                code = show_one(number, values, flags.all, remark)
            return code

    quietly(run)


def asked(step: int, flags: dict[str, Any]) -> Any:
    """A step with these flags, for a notebook; ValueError for what cannot be."""
    from steps.walk.fragment import Shown
    from steps.walk.order import titles

    numbers = [title.number for title in titles()]
    if step not in numbers:
        raise ValueError(f"there is no step {step}; there are 1 to {numbers[-1]}")
    made = parser("show", "")
    given = []
    for name, value in flags.items():
        given += ["--" + name.replace("_", "-"), str(value)]
    try:
        with contextlib.redirect_stderr(io.StringIO()) as said:
            values, _ = settings(made.parse_args(given))
    except SystemExit:
        raise ValueError(said.getvalue().strip().removeprefix("show: ")) from None
    except UserError as error:
        raise ValueError(str(error)) from None
    return Shown(values, step)
