"""`--check FILE...`: examine files and print what was found."""

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import NoReturn

from steps.debugger import LONGEST
from steps.debugger.result import EXIT, Diagnosis
from steps.errors import UserError, drop
from steps.progress import Progress, quiet

FLAGS = (
    *("--timeout", "--jobs", "--build", "--call", "--causal", "--no-causal"),
    *("--quick", "--strict"),
)
MOST_JOBS = 1024


def seconds(text: str) -> float:
    """A time limit: more than 0, at most LONGEST."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= LONGEST:
        raise argparse.ArgumentTypeError(
            f"takes a number of seconds above 0, at most {LONGEST}, not {text!r}"
        )
    return value


def at_once(text: str) -> int:
    """A number of files."""
    value = int(text) if text.isascii() and text.isdigit() else 0
    if not 0 < value <= MOST_JOBS:
        raise argparse.ArgumentTypeError(
            f"takes a whole number from 1 to {MOST_JOBS}, not {text!r}"
        )
    return value


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The debugger's own flags, for any parser that offers --check."""
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=30.0,
        metavar="SECONDS",
        help="for each file (default 30)",
    )
    parser.add_argument(
        "--jobs",
        type=at_once,
        metavar="N",
        help="files examined at once (default: one a processor)",
    )
    parser.add_argument(
        "--build",
        metavar="CALL",
        help='how to make the module, such as "MyAttention(12, heads=3)"',
    )
    parser.add_argument(
        "--call",
        metavar="ARGUMENTS",
        help='what forward is given, such as "x, context=torch.randn(B, 5, 32)"',
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="do not look for the change that mends a fault",
    )
    parser.add_argument(
        "--strict", action="store_true", help="a risk counts as a fault: exit 1"
    )
    parser.add_argument(
        "--causal",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="whether the attention must be causal (default: what the class claims)",
    )


def split_target(target: str) -> tuple[str, str | None]:
    """FILE:CLASS -> (FILE, CLASS); a drive letter's colon is no separator."""
    file, colon, name = target.rpartition(":")
    if colon and file and name.isidentifier():
        return file, name
    return target, None


def check(
    files: Sequence[str],
    as_json: bool = False,
    timeout: float = 30,
    build: str | None = None,
    causal: bool | None = None,
    page: str | None = None,
    force: bool = False,
    jobs: int | None = None,
    call: str | None = None,
    quick: bool = False,
    strict: bool = False,
) -> int:
    """Examine each file, `my_attention.py` or `my_attention.py:ClassName`, and print.

    page: a file for what was found as a page, too; force: overwrite any file there.
    jobs: how many files are examined at once; None: one a processor.
    build, call: how the module is made, and what forward is given.
    quick: do not look for the change that mends a fault.

    Returns 0 when no fault was found in any, 1 when one has a fault (or, if strict, a
    risk), 2 when one could not be examined (and none has a fault).
    """
    from steps.debugger.apart import side_by_side
    from steps.debugger.examine import examine_file

    if not files or not all(files):
        raise UserError("--check: takes the names of files, one or more")
    if page is not None:
        from steps.debugger.page import check_target, write_report

        if os.path.realpath(page) in [
            os.path.realpath(split_target(target)[0]) for target in files
        ]:
            raise UserError(f"--page: {page} is to be examined; name another file")
        check_target(page, force)
    results: list[Diagnosis] = []
    progress = Progress()

    def show(found: Diagnosis) -> None:
        progress.end()
        told = found.json() if as_json else "\n" * bool(results) + str(found)
        if strict and found.risks and not as_json and found.verdict != "fault":
            told += "\n--strict: a risk counts as a fault."
        results.append(found)
        try:
            print(told, flush=True)
        except BrokenPipeError:  # read no further; the exit code is of all files
            drop(sys.stdout)
        if len(results) < len(files) and not sys.stdout.isatty():
            progress(f"{len(results)} of {len(files)} files examined")

    work = []
    for file, name in map(split_target, files):
        how = partial(examine_file, file, name, build, causal, timeout, call, quick)
        work.append((file, how))
    with progress:
        side_by_side(work, show, timeout, jobs, values=page is not None)
    if page is not None:
        write_report(results, page, force)
    codes = [EXIT[found.verdict] for found in results]
    codes += [1 for found in results if strict and found.risks]
    return 1 if 1 in codes else max(codes, default=0)


def step(file: str, argv: Sequence[str] | None = None) -> NoReturn:
    """`python -m steps.step23`: the lesson, or, given files, what is found in them."""
    from steps.commandline import quietly
    from steps.walk import command

    given = list(sys.argv[1:] if argv is None else argv)
    if names_files(given) or given in (["-h"], ["--help"]):
        quietly(lambda: main(given))
    command.step(file, given)


def names_files(given: list[str]) -> bool:
    """Whether the arguments are the debugger's: a file, or a flag that only it has."""
    from steps.walk.command import parser

    both = parser("steps.step23", "")
    add_flags(both)
    both.add_argument("--json", action="store_true")
    both.add_argument("files", nargs="*")
    given = [argument for argument in given if argument not in ("-h", "--help")]
    files = both.parse_known_intermixed_args(given)[0].files
    return bool(files) or bool(both.given(given) & {"--json", *FLAGS})


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m steps.step23 FILE...`."""
    from steps.commandline import Parser, add_quiet

    parser = Parser(
        prog="steps.step23",
        description="The first line where attention goes wrong.",
        epilog="Without a file, step 23 is the lesson, with the flags of every step.",
    )
    parser.add_argument(
        "files", nargs="+", metavar="FILE[:CLASS]", help="Python files to examine"
    )
    parser.add_argument(
        "--json", action="store_true", help="one JSON object a file, a line each"
    )
    add_flags(parser)
    add_quiet(parser)
    flags = parser.parse_args(sys.argv[1:] if argv is None else argv)
    return check_flags(flags.files, flags)


def check_flags(files: Sequence[str], flags: argparse.Namespace) -> int:
    """`check` as the flags of `add_flags`, --json and, where it is one, --page ask."""
    page = {name: getattr(flags, name) for name in ("page", "force") if name in flags}
    with quiet(flags.quiet):
        return check(
            files,
            flags.json,
            flags.timeout,
            flags.build,
            flags.causal,
            jobs=flags.jobs,
            call=flags.call,
            quick=flags.quick,
            strict=flags.strict,
            **page,
        )
