"""What all commands of ours share: one-line errors, streams, exit codes.

Exit codes: 0 all is well, 1 a check failed or a fault was found, 2 the command cannot
be done as asked.
"""

import argparse
import errno
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, NoReturn, TextIO

from steps.errors import ROOT, UserError, complain, drop, lost, shortage

# Why standard output cannot be written to: full, not open for it, too large, broken.
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EBADF, errno.EFBIG, errno.EIO)


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        complain(f"{self.prog}: {message.removeprefix('argument ')}")
        raise SystemExit(2)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse, which takes --heads=-- for no value at all, does not."""
        args = list(sys.argv[1:] if args is None else args)
        for flag, _, value in (argument.partition("=") for argument in args):
            if value == "--" and flag in self._option_string_actions:
                self.error(f"{flag}: expected one argument")
        return super().parse_known_args(args, namespace)

    def given(self, argv: Sequence[str]) -> set[str]:
        """The flags that were typed, at their defaults or not, once they are parsed."""
        before = takewhile(lambda argument: argument != "--", argv)
        return {
            a.partition("=")[0] for a in before
        } & self._option_string_actions.keys()

    def print_help(self, file: Any = None) -> None:
        """As argparse, which hides that the output cannot be written, does not."""
        print(self.format_help(), end="", file=file)


def add_quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quiet", action="store_true", help="do not say how far long work is"
    )


def whole(low: int, high: int) -> Callable[[str], int]:
    """A reader of whole numbers from `low` to `high`."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(
                f"takes a whole number from {low} to {high}, not {text!r}"
            )
        return value

    return read


def typed(text: str) -> str:
    """An argument as it was typed, in UTF-8, whatever the locale makes of it."""
    with suppress(UnicodeError):
        text.encode()
        return text
    with suppress(UnicodeError):
        return os.fsencode(text).decode()
    return text


def answers() -> TextIO:
    """Standard input, to read answers from.

    Raises UserError where it is closed or not open for reading.
    """
    if getattr(sys.stdin, "name", "") == os.devnull:  # of `usable_streams`
        raise UserError("--predict: standard input, for the answers, is closed")
    try:
        os.read(sys.stdin.fileno(), 0)
    except io.UnsupportedOperation:  # a stream of Python's own
        pass
    except OSError as error:
        raise UserError(
            f"--predict: standard input, for the answers: {error.strerror}"
        ) from None
    return sys.stdin


def quietly(run: Callable[[], int]) -> NoReturn:
    """Run a command to its exit code: a line for a reader's error, none for | head."""
    with usable_streams(), ExitStack() as settings:
        if "torch" in sys.modules:  # somebody may have set it up in another way
            from steps.pytorch import published

            settings.enter_context(published())
        code = exit_code(run)
    raise SystemExit(code)


def exit_code(run: Callable[[], int]) -> int:
    """What a command returns; 2 and a line where it cannot be done."""
    code, line = 0, ""
    try:
        try:
            code = run()
        except SystemExit as end:  # the parser has said why
            code = end.code if isinstance(end.code, int) else 0
        except UserError as error:
            code, line = 2, str(error)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the pipe has seen enough
        drop(sys.stdout)
    except KeyboardInterrupt:
        complain("")
        return 130
    except Exception as error:
        code, line = 2, limit(error)
        if not line:
            raise  # a fault of ours
    if line:
        complain(f"{name_of_program()}: {line}")
    return code


def limit(error: Exception) -> str:
    """What of the machine or the installation is behind an error; '' for neither."""
    file = getattr(error, "filename", None)
    if isinstance(error, OSError) and file is None and error.errno in UNWRITABLE:
        drop(sys.stdout)
        return f"the output: {error.strerror}"
    if lacking := shortage(error):
        return lacking
    if isinstance(file, str) and Path(file).is_relative_to(ROOT / "steps"):
        return str(lost(Path(file), f"cannot be read ({error.args[-1]})"))
    if isinstance(error, ModuleNotFoundError):
        package, *parts = (error.name or "").split(".")
        if package == "steps":
            return str(lost(ROOT.joinpath(package, *parts), "(.py) is missing"))
    return ""


@contextmanager
def usable_streams() -> Iterator[None]:
    """Standard streams that are there, and show what the console lacks as \\u....

    They are left as found.
    """
    with ExitStack() as undo:
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            stream = getattr(sys, name)
            if stream is None:  # it was closed
                undo.callback(setattr, sys, name, None)
                setattr(sys, name, undo.enter_context(open(os.devnull, mode)))
            elif isinstance(stream, io.TextIOWrapper):
                undo.callback(reconfigure, stream, stream.errors)
                reconfigure(stream, "backslashreplace")
        yield


def reconfigure(stream: io.TextIOWrapper, errors: str | None) -> None:
    with suppress(OSError, ValueError):  # it is full, or has been read from
        stream.reconfigure(errors=errors)


def name_of_program() -> str:
    name = os.path.basename(sys.argv[0])
    return name if name == "gptversion.py" else f"steps.{name.removesuffix('.py')}"
