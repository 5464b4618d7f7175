"""A reader's file examined in a process of its own: nothing in it reaches the next."""

import contextlib
import gc
import os
import pickle
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from typing import NoReturn

from steps.debugger.result import Diagnosis

# Elsewhere a process with torch in it cannot be forked safely, or at all.
FORKS = sys.platform.startswith("linux")
LONGEST = 86400  # seconds, a day: the most that a time limit may be
GRACE = 5.0  # seconds beyond the file's own limit, which the file may have broken


def apart(examine: Callable[[], Diagnosis], file: str, timeout: float) -> Diagnosis:
    """What `examine` finds, run in a forked process where that can be done.

    Whatever the file does to its process (ends it, closes its output, patches torch,
    leaves threads or programs running) ends with that process, and what the programs
    that it starts print is not seen.
    """
    if not FORKS:
        return examine()
    reading, writing = os.pipe()
    sys.stdout.flush()
    with warnings.catch_warnings():  # from Python 3.12 on: threads of torch's are idle
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        gc.freeze()  # what was there before is no garbage, and is not copied to look
        os.close(reading)
        answer(examine, writing)
    os.close(writing)
    try:
        data, late = received(reading, timeout + GRACE)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    if late:
        return Diagnosis(file, "cannot tell", message=too_long(timeout))
    with contextlib.suppress(EOFError, pickle.UnpicklingError):
        return pickle.loads(data)
    ended = "it ended the process that ran it"
    if os.WIFSIGNALED(status):
        ended += f" ({signal.Signals(os.WTERMSIG(status)).name})"
    return Diagnosis(file, "cannot tell", message=ended)


def answer(examine: Callable[[], Diagnosis], writing: int) -> NoReturn:
    """In the child: send what is found, and end without another word."""
    try:
        os.setsid()  # so that all it starts can be ended with it
        # Tracebacks of ours still appear; nothing that the file starts reads or writes.
        sys.stderr = open(os.dup(2), "w", 1, errors="backslashreplace")  # noqa: SIM115
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nowhere, stream)
        data = memoryview(pickle.dumps(examine()))
        while data:
            data = data[os.write(writing, data) :]
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def received(reading: int, seconds: float) -> tuple[bytes, bool]:
    """All that the child sends, and whether it took too long."""
    data, until = b"", time.monotonic() + seconds
    while True:
        ready, _, _ = select.select([reading], [], [], max(until - time.monotonic(), 0))
        if not ready:
            return data, True
        part = os.read(reading, 1 << 16)
        if not part:
            return data, False
        data += part


def too_long(timeout: float) -> str:
    return (
        f"did not come back within {timeout:g} seconds (an endless loop?); "
        "--timeout gives it more"
    )
