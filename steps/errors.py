"""What goes wrong that is the reader's to mend, and how it is said: in one line."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parent.parent


class UserError(Exception):
    """What was asked for cannot be done; the message is one line and says what can."""


def complain(line: str) -> None:
    """A line on standard error; no error itself where that cannot be written."""
    try:
        print(printable(line), file=sys.stderr, flush=True)
    except OSError:
        drop(sys.stderr)


def printable(text: str) -> str:
    """Any text as one line, what is no character or moves the cursor as an escape."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def drop(stream: TextIO) -> None:
    """Let what a stream still holds go nowhere: it is full, or nobody reads it."""
    with suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def lost(file: Path, reason: str) -> UserError:
    """A file of the program's own that is not there, or not as it was published."""
    name = file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else file
    return UserError(
        f"{name} {reason}; to get it back, in the program's own folder: "
        f"git checkout -- {name}"
    )


def not_installed(package: str, error: Exception) -> UserError:
    """A package that is missing, or of which a part is missing, and the command."""
    if isinstance(error, ModuleNotFoundError) and error.name == package:
        return UserError(f"{package} is not installed: pip install -r requirements.txt")
    if lacking := shortage(error):
        return UserError(f"{lacking} to load {package}")
    return UserError(
        f"{package} is only half installed ({' '.join(str(error).split())[:160]}): "
        f"pip install --force-reinstall -c requirements.txt {package}"
    )


@contextmanager
def room_for(asked: str, less: str) -> Iterator[None]:
    """Say what was asked for, and what takes less, where the machine has too little."""
    try:
        yield
    except Exception as error:
        if lacking := shortage(error):
            raise UserError(f"{lacking} for {asked}; {less}") from None
        raise


def shortage(error: BaseException) -> str:
    """What the machine has too little of, where that is the error; else ''."""
    if isinstance(error, UserError):  # said already
        return ""
    text = str(error)
    if isinstance(error, MemoryError) or any(part in text for part in MEMORY):
        return "not enough memory"
    if "Too many open files" in text:
        return "not enough open files allowed (ulimit -n)"
    if "can't start new thread" in text:
        return "not enough threads allowed (ulimit -u)"
    return ""


MEMORY = (  # as the system, C++, torch and the loader of libraries have it
    "Cannot allocate memory",
    "bad_alloc",
    "can't allocate memory",
    "not enough memory",
    "failed to map segment",
    "unable to mmap",
)
