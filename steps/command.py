"""The command line of `gptversion.py`: the walk, or --check for the debugger."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from steps.commandline import Parser, answers, quietly
from steps.debugger.command import FLAGS, add_flags, check_flags
from steps.errors import printable
from steps.progress import quiet
from steps.walk.command import (
    add_all,
    note_other_torch,
    parser,
    room,
    settings,
    show,
    steps_of,
)
from steps.walk.order import titles


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """`python gptversion.py`: every step in order, or one of its other forms."""

    def run() -> int:
        typed_in = list(sys.argv[1:] if argv is None else argv)
        made = whole_parser()
        flags, rest = made.parse_known_args(typed_in)
        # Files may stand anywhere: --check --json FILE.
        files = [name for name in rest if flags.check is not None and name[:1] != "-"]
        if unknown := [argument for argument in rest if argument not in files]:
            made.error(f"unrecognized arguments: {' '.join(unknown)}")
        check_together(made, made.given(typed_in), flags)
        if flags.check is not None:
            return check_flags(flags.check + files, flags)
        if flags.list:
            from steps.walk.text import listing

            print("\n".join(listing(titles())))
            return 0
        values, remark = settings(flags)
        with room(values), quiet(flags.quiet):
            return walk(flags, values, remark)

    quietly(run)


def walk(flags: argparse.Namespace, values: dict[str, Any], remark: str) -> int:
    """The walk in the form that is asked for; its exit code."""
    numbers = flags.steps or [title.number for title in titles()]
    if flags.json:
        from steps.walk.document import write

        return write(values, sys.stdout, numbers)
    if flags.predict:
        from steps.walk.predict import predict

        return predict(values, numbers, answers(), sys.stdout)
    if flags.page is not None:
        from steps.walk.page import write_page

        write_page(values, flags.page, flags.force)
        print(f"Open {printable(os.path.abspath(flags.page))} in a browser.")
        note_other_torch()
        return 0
    return show(numbers, values, flags.all, remark)


def whole_parser() -> Parser:
    """The flags of `gptversion.py`."""
    made = parser("gptversion.py", "Multi-head attention, one shape at a time.")
    form = made.add_mutually_exclusive_group()
    form.add_argument("--list", action="store_true", help="name the steps and stop")
    form.add_argument("--json", action="store_true", help="the whole walk as JSON")
    form.add_argument("--predict", action="store_true", help="guess the shapes first")
    form.add_argument(
        "--page", metavar="FILE", help="the whole walk as a page, for a browser"
    )
    made.add_argument(
        "--steps", type=steps_of, metavar="N-N", help="only these, as 14-20 or 15"
    )
    add_all(made)
    made.add_argument(
        "--force", action="store_true", help="let --page overwrite any file"
    )
    made.add_argument(
        "--check", nargs="*", metavar="FILE", help="examine your own attention"
    )
    add_flags(made)
    return made


def check_together(made: Parser, given: set[str], flags: argparse.Namespace) -> None:
    """Refuse flags that do not go together."""
    if flags.check is not None:
        beside = {"--check", "--json", "--page", "--force", "--quiet", *FLAGS}
        if given - beside:
            made.error(f"{min(given - beside)}: does not go with --check")
    elif given & set(FLAGS):
        made.error(f"{min(given & set(FLAGS))}: belongs to --check FILE")
    if flags.force and flags.page is None:
        made.error("--force: belongs to --page FILE")
    if flags.steps and (flags.list or flags.page is not None):
        made.error("--steps: does not go with --list or --page")
    if flags.all and given & {"--list", "--json", "--predict", "--page"}:
        made.error("--all: belongs to the walk as text")
