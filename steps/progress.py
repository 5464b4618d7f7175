"""How far something long is, for the reader who waits, on standard error.

After two seconds: in place on a terminal, in a pipe a line a stage; --quiet: nothing.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from steps.errors import complain, printable

PATIENCE = 2.0  # seconds in which nobody needs to be told
_quiet = False


@contextmanager
def quiet(wanted: bool) -> Iterator[None]:
    """Say nothing of how far anything is, inside."""
    global _quiet
    before, _quiet = _quiet, _quiet or wanted
    try:
        yield
    finally:
        _quiet = before


class Progress:
    """What is being done, told once it takes long; `end` before anything else is said.

    As a context manager it ends by itself.
    """

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._stage = ""
        self._in_place = False

    def __call__(self, stage: str, detail: str = "") -> None:
        """Begin a stage, or, with the same one, a part of it."""
        if _quiet or time.monotonic() - self._start < PATIENCE:
            return
        if sys.stderr.isatty():
            text = printable(f"{stage}: {detail}" if detail else stage)
            print(f"\r\033[K{text[:78]}", end="", file=sys.stderr, flush=True)
            self._in_place = True
        elif stage != self._stage:
            complain(stage)
        self._stage = stage

    def end(self) -> None:
        """Take away what stands on the terminal."""
        if self._in_place:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        self._in_place = False

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
