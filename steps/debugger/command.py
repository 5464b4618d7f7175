"""`--check FILE...`: examine files and print what was found."""

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import NoReturn

from steps.debugger.apart import LONGEST, apart
from steps.debugger.result import EXIT
from steps.errors import UserError

FLAGS = ("--timeout", "--build", "--causal")


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
        "--build",
        metavar="CALL",
        help='how to make the module, such as "MyAttention(12, heads=3)"',
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
) -> int:
    """Examine each file, `my_attention.py` or `my_attention.py:ClassName`, and print.

    page: a file for what was found as a page, too; force: overwrite any file there.

    Returns 0 when no fault was found in any, 1 when one has a fault, 2 when one could
    not be examined (and none has a fault).
    """
    from steps.debugger.examine import examine_file

    if page is not None:
        from steps.walk.page import check_target, write_report

        if os.path.realpath(page) in [
            os.path.realpath(split_target(target)[0]) for target in files
        ]:
            raise UserError(f"--page: {page} is to be examined; name another file")
        check_target(page, force)
    results = []
    for number, target in enumerate(files):
        file, name = split_target(target)
        examine = partial(examine_file, file, name, build, causal, timeout)
        result = apart(examine, file, timeout)
        if as_json:
            print(result.json(), flush=True)
        else:
            print(("\n" if number else "") + str(result), flush=True)
        results.append(result)
    if page is not None:
        write_report(results, page, force)
    codes = [EXIT[result.verdict] for result in results]
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
    asked, bare = (
        both.parse_known_intermixed_args(arguments)[0] for arguments in (given, [])
    )
    names = ("files", "json", *(flag.removeprefix("--") for flag in FLAGS))
    return any(getattr(asked, name) != getattr(bare, name) for name in names)


def main(argv: Sequence[str] | None = None) -> int:
    """`python -m steps.step23 FILE...`."""
    from steps.commandline import Parser

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
    flags = parser.parse_args(sys.argv[1:] if argv is None else argv)
    return check(flags.files, flags.json, flags.timeout, flags.build, flags.causal)


def check_flags(files: Sequence[str], flags: argparse.Namespace) -> int:
    """`check` as the flags of `add_flags`, --json and --page ask."""
    return check(
        files,
        flags.json,
        flags.timeout,
        flags.build,
        flags.causal,
        flags.page,
        flags.force,
    )
