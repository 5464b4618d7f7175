"""Readers' files examined side by side, each in a process of its own.

Nothing that a file does to its process reaches the next, or what is said of it: it may
end the process, close its descriptors, patch torch, leave threads or programs running.
What is found comes back in memory that the two processes share: no descriptor leads
there, so nothing that a file writes, closes or floods is taken for an answer.
"""

import contextlib
import ctypes
import gc
import io
import mmap
import os
import re
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from steps.debugger.answer import HEAD, packed, unpacked
from steps.debugger.contain import ALONE, Names, in_main_thread, names_now, resource
from steps.debugger.load import failed, too_long
from steps.debugger.result import Diagnosis, ascii_only

# Elsewhere a process with torch in it cannot be forked safely, or at all.
FORKS = sys.platform.startswith("linux")
GRACE = 5.0  # seconds beyond the file's own limit, which the file may have broken
TICK = 0.002  # seconds from one look at whether a process has ended to the next
ROOM = 2**24  # bytes of an answer, taken as they are used
ROOM_WITH_VALUES = 2**28
MEMORY = 8 * 2**30  # bytes that a file may have, beside torch's
FILE = 2**30  # bytes of each file that it writes
PROCESSES = 512  # and threads, beside those that there are
SECRET = re.compile(
    r"(^|_)(KEYS?|TOKENS?|AUTH|PASS|PASSWD|PASSPHRASE|CREDENTIALS?|COOKIES?)(_|$)"
    r"|APIKEY|SECRET|PASSWORD|._PWD$",
    re.IGNORECASE,
)
ADDRESS = re.compile(r"://[^/@\s]*:[^/@\s]+@")  # with a password in it
PARENT_DEATH, SET_SUBREAPER, GET_SUBREAPER = 1, 36, 37  # of prctl(2)

Examine = Callable[[], Diagnosis]


def cpus() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if FORKS else os.cpu_count() or 1


def side_by_side(
    work: Sequence[tuple[str, Examine]],
    show: Callable[[Diagnosis], Any],
    timeout: float,
    jobs: int | None = None,
    values: bool = False,
) -> None:
    """Examine files, each a name and how, and show what is found in the order given.

    timeout: seconds for each. jobs: how many at once; None: one a processor.
    values: whether the traces are wanted with their tensors.
    """
    if not FORKS:
        for _, examine in work:
            show(examine())
        return
    names = names_now()
    waiting = list(enumerate(work))[::-1]
    running: dict[int, Job] = {}
    found: dict[int, Diagnosis] = {}

    def start() -> None:
        number, (file, examine) = waiting.pop()
        begin = partial(alone, examine, running, names)
        try:
            with held_back():  # so that none is started and not known
                running[number] = Job(file, begin, timeout, values)
        except OSError as error:  # a lack of processes or memory
            said = f"no process could be started for it: {error.strerror}"
            found[number] = Diagnosis(file, "cannot tell", message=said)

    def finish() -> None:
        over = [number for number, job in running.items() if job.over()]
        for number in over:
            found[number] = running[number].result()
            del running[number]
            end_strays({job.process for job in running.values()})
        if not over:
            time.sleep(TICK)

    with ended_by_signals(), adopting() as end_strays:
        try:
            for turn in range(len(work)):
                while turn not in found:
                    while waiting and len(running) < (jobs or cpus()):
                        start()
                    finish()
                show(found.pop(turn))
        finally:
            for job in running.values():
                job.end()
            end_strays(())


def alone(examine: Examine, running: dict[int, "Job"], names: Names) -> Diagnosis:
    """What `examine` finds in a process of its own; the answers of others go first."""
    for job in running.values():
        job.room.close()
    ALONE.append(names)
    return examine()


class Job:
    """A file that is examined in a process of its own."""

    def __init__(
        self, file: str, examine: Examine, timeout: float, values: bool
    ) -> None:
        self.file, self.timeout = file, timeout
        self._until = time.monotonic() + timeout + GRACE
        self._late = False
        self.room = mmap.mmap(-1, ROOM_WITH_VALUES if values else ROOM)
        parent = os.getpid()
        with warnings.catch_warnings():  # from Python 3.12 on: torch's threads are idle
            warnings.simplefilter("ignore", DeprecationWarning)
            self.process = os.fork()
        if self.process == 0:
            self._answer(examine, values, parent)

    def _answer(self, examine: Examine, values: bool, parent: int) -> NoReturn:
        """In the new process: leave what is found, and end without another word."""
        try:
            room = len(self.room) - HEAD
            told = sys.stderr = io.StringIO()  # tracebacks of ours
            try:
                gc.freeze()  # what was there is no garbage, nor copied to look for it
                set_apart(parent)
                data = packed(examine(), room, values, told.getvalue())
            except BaseException as error:
                said = Diagnosis(self.file, "cannot tell", message=failed(error))
                data = packed(said, room, traceback=traceback.format_exc())
            self.room[HEAD : HEAD + len(data)] = data
            self.room[:HEAD] = len(data).to_bytes(HEAD, "big")  # last: now it is whole
        finally:
            os._exit(0)

    def over(self) -> bool:
        """Whether the process has ended or had its time."""
        looked = os.WEXITED | os.WNOHANG | os.WNOWAIT
        try:
            if os.waitid(os.P_PID, self.process, looked) is not None:
                return True
        except ChildProcessError:  # nobody here waits for processes
            return True
        self._late = time.monotonic() > self._until
        return self._late

    def end(self) -> int:
        """End the process and all of its session; how it ended, as of waitpid."""
        for kill in (os.killpg, os.kill):  # it may not lead a group yet
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(self.process, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            return os.waitpid(self.process, 0)[1]
        return 0

    def result(self) -> Diagnosis:
        """What was found, once it is over."""
        status = self.end()
        size = int.from_bytes(self.room[:HEAD], "big")
        data = self.room[HEAD : HEAD + size]
        self.room.close()
        if self._late:
            return Diagnosis(self.file, "cannot tell", message=too_long(self.timeout))
        said = "it ended the process that ran it"
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            named = [known.name for known in signal.Signals if known == number]
            said += f" ({named[0] if named else f'signal {number}'})"
        if data:
            try:
                found, told = unpacked(data)
                found.file = self.file
                for line in told.splitlines():
                    print(ascii_only(line), file=sys.stderr)
                return found
            except ValueError as error:
                said = f"it wrote over what was found of it ({error})"
        return Diagnosis(self.file, "cannot tell", message=said)


def set_apart(parent: int) -> None:
    """Leave the parent's terminal, streams and secrets, and stay within limits."""
    os.setsid()  # so that all it starts can be ended with it
    prctl(PARENT_DEATH, signal.SIGKILL)
    prctl(SET_SUBREAPER, 1)  # what it leaves is ended when it has ended
    if os.getppid() != parent:
        os._exit(0)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    for name, value in list(os.environ.items()):
        if SECRET.search(name) or ADDRESS.search(value):
            del os.environ[name]
    with contextlib.suppress(OSError):  # where memory runs out, this process goes first
        Path("/proc/self/oom_score_adj").write_text("1000")
    for kind, most in limits():
        least = min(n for n in (most, *resource.getrlimit(kind)) if n >= 0)
        resource.setrlimit(kind, (least, least))


def limits() -> Iterator[tuple[int, int]]:
    """What a file's process may use."""
    yield resource.RLIMIT_CORE, 0
    yield resource.RLIMIT_FSIZE, FILE
    with contextlib.suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        yield resource.RLIMIT_AS, pages * resource.getpagesize() + MEMORY
        threads = Path("/proc/loadavg").read_text().split()[3].partition("/")[2]
        yield resource.RLIMIT_NPROC, int(threads) + PROCESSES


def prctl(option: int, argument: Any) -> None:
    """Ask Linux for something that is done without where it is not to be had."""
    if isinstance(argument, int):
        argument = ctypes.c_ulong(argument)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, argument, *[ctypes.c_ulong(0)] * 3)


@contextlib.contextmanager
def adopting() -> Iterator[Callable[[Container[int]], None]]:
    """Be given the processes that ended jobs leave, in a session of their own or not.

    Yields what ends them: all but those that are told, and those there were before.
    """
    before, was = set(children()), ctypes.c_int()
    prctl(GET_SUBREAPER, ctypes.byref(was))
    prctl(SET_SUBREAPER, 1)

    def end_strays(running: Container[int]) -> None:
        for _ in range(1000):  # each that is ended may leave some
            left = [c for c in children() if c not in before and c not in running]
            for process in left:
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    if os.getsid(process) != os.getsid(0):  # or it is no job's
                        os.kill(process, signal.SIGKILL)
                        os.waitpid(process, 0)
            if not left:
                break

    try:
        yield end_strays
    finally:
        prctl(SET_SUBREAPER, was.value)


def children() -> list[int]:
    """The processes that this one has started or been given, where Linux tells."""
    lists = Path("/proc/self/task").glob("*/children")
    return [int(process) for path in lists for process in path.read_text().split()]


class Ended(BaseException):
    """A signal asks this process to end."""


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end this process as ever, once what is inside has ended."""
    asked = []

    def unwind(number: int, _: Any) -> NoReturn:
        asked.append(number)
        raise Ended

    heeded = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP)
        if in_main_thread() and signal.getsignal(number) is signal.SIG_DFL
    ]
    try:
        for number in heeded:
            signal.signal(number, unwind)
        yield
    except Ended:
        pass
    finally:
        for number in heeded:
            signal.signal(number, signal.SIG_DFL)
    if asked:
        os.kill(os.getpid(), asked[0])


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Signals that would interrupt come after what is inside."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
