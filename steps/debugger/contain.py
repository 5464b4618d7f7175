"""What a reader's code changes in the process that runs it, found out and put back."""

import atexit
import builtins
import contextlib
import gc
import io
import math
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from steps.pytorch import nn, torch

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

GONE = object()
TORCH = os.path.join(os.path.dirname(torch.__file__), "")
# torch.Storage goes with the default dtype.
HARMLESS = ("builtins.print", "builtins.input", "builtins._", "torch.Storage")


class Nowhere(io.RawIOBase):
    """Where the reader's code prints to: all that is kept is whether it did."""

    written = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.written = True
        return len(data)

    def close(self) -> None:
        """Stay open: the reader's code may close what it takes for its own output."""


def in_main_thread() -> bool:
    """Whether signals may be handled here."""
    return threading.current_thread() is threading.main_thread()


def default_device() -> torch.device | None:
    """Where tensors are made when nothing is said; None: torch's own default, the CPU.

    Asked only where something has loaded what it takes to have another.
    """
    known = "torch.utils._device" in sys.modules
    device = torch.get_default_device() if known else None
    return None if device is None or device.type == "cpu" else device


def put_environment(variables: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)


def folder() -> str | None:
    with contextlib.suppress(OSError):  # it may be gone
        return os.getcwd()
    return None


def put_folder(before: str | None) -> None:
    with contextlib.suppress(OSError):
        os.chdir(before or os.curdir)


def timers() -> dict[int, tuple[float, float, float]]:
    """Each timer: seconds until its signal, from then on, and when that was asked."""
    names = ("ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF") * in_main_thread()
    known = [getattr(signal, name) for name in names if hasattr(signal, name)]
    return {t: (*signal.getitimer(t), time.monotonic()) for t in known}


def put_timers(before: dict[int, tuple[float, float, float]]) -> None:
    for timer, (left, interval, then) in before.items():
        due = left and max(left - (time.monotonic() - then), 1e-6)
        if due or signal.getitimer(timer)[0]:
            signal.setitimer(timer, due, interval)


def handlers() -> dict[int, Any]:
    """What is done at each signal, where Python knows and may change it."""
    numbers = signal.valid_signals() if in_main_thread() else ()
    found = {number: signal.getsignal(number) for number in numbers}
    return {number: done for number, done in found.items() if done is not None}


def put_handlers(before: dict[int, Any]) -> None:
    for number, done in before.items():
        if signal.getsignal(number) is not done:
            signal.signal(number, done)


def limits() -> dict[int, tuple[int, int]]:
    """What the process may use of memory, files and the like: soft and hard."""
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    kinds = {getattr(resource, name) for name in names}
    return {kind: resource.getrlimit(kind) for kind in kinds}


def put_limits(before: dict[int, tuple[int, int]]) -> None:
    for kind, (soft, _) in before.items():
        with contextlib.suppress(ValueError, OSError):  # a hard limit stays lowered
            resource.setrlimit(kind, (soft, resource.getrlimit(kind)[1]))


# How what belongs to the process or the thread is asked, and how it is put back.
STATES: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = [
    (torch.get_default_dtype, torch.set_default_dtype),
    (default_device, torch.set_default_device),
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    (torch.get_rng_state, torch.set_rng_state),
    (random.getstate, random.setstate),
    (lambda: list(sys.path), lambda path: sys.path.__setitem__(slice(None), path)),
    (lambda: list(sys.argv), lambda argv: setattr(sys, "argv", argv)),
    (lambda: dict(os.environ), put_environment),
    (folder, put_folder),
    (gc.get_threshold, lambda numbers: gc.set_threshold(*numbers)),
    (gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (sys.gettrace, sys.settrace),
    (sys.getprofile, sys.setprofile),
    (handlers, put_handlers),
    (timers, put_timers),
    (limits, put_limits),
]


def same(one: Any, two: Any) -> bool:
    """Whether two values are equal, as far as that can be asked."""
    try:
        return one is two or bool(one == two)
    except Exception:
        return False


def owners() -> list[Any]:
    """The modules and classes that a verdict rests on: torch's and the steps'."""
    ours = [m for name, m in sys.modules.items() if name.partition(".")[0] == "steps"]
    classes = [torch.Tensor, nn.Module, nn.Parameter, nn.Linear, nn.Dropout]
    modules = [builtins, math, torch, nn, nn.functional, nn.init]
    for module in ours:
        mine = (value for value in vars(module).values() if isinstance(value, type))
        classes += [value for value in mine if value.__module__ == module.__name__]
    return [*modules, *ours, *classes]


Names = list[tuple[Any, dict[str, Any]]]


def names_now() -> Names:
    """What their names stand for; of our modules' those of functions and classes."""

    def named(owner: Any) -> dict[str, Any]:
        ours = owner.__name__.startswith("steps")
        names = vars(owner).items()
        return {n: v for n, v in names if callable(v) or not (ours or n[:2] == "__")}

    return [(owner, named(owner)) for owner in owners()]


def torchs_own(value: Any) -> bool:
    """Whether a function is torch's: it wraps some of its own when it is first used."""
    code = getattr(value, "__code__", None)
    return code is not None and code.co_filename.startswith(TORCH)


class Before:
    """How things are before a reader's code runs, to be put back after it.

    folder: the reader's own, whose modules are forgotten.
    """

    def __init__(self, folder: str | None) -> None:
        self.thread = threading.get_ident()
        self.output = Nowhere()
        self._folder = folder
        self._streams = sys.stdin, sys.stdout, sys.stderr
        self._modules = dict(sys.modules)
        self._states = [(get, put, get()) for get, put in STATES]
        self._names = ALONE[0] if ALONE else names_now()
        numpy = getattr(sys.modules.get("numpy"), "random", None)
        self._random = numpy and (numpy.set_state, numpy.get_state())

    def put_back(self) -> None:
        """Undo what was changed since."""
        for owner, name, value in list(self._changed()):
            delattr(owner, name) if value is GONE else setattr(owner, name, value)
        self.put_streams_back()
        for get, put, value in self._states:
            if not same(get(), value):
                put(value)
        if self._random:
            put, state = self._random
            put(state)
        for name, module in list(sys.modules.items()):
            old = self._modules.get(name)
            if old is not module and belongs(module, self._folder):
                del sys.modules[name]
                if old is not None:
                    sys.modules[name] = old

    def put_streams_back(self) -> None:
        sys.stdin, sys.stdout, sys.stderr = self._streams

    def replaced(self) -> list[str]:
        """What the reader's code put in place of torch's, Python's or our own."""
        names = [
            f"{owner.__module__}.{owner.__qualname__}.{name}"
            if isinstance(owner, type)
            else f"{owner.__name__}.{name}"
            for owner, name, _ in self._changed()
        ]
        return [name for name in names if name not in HARMLESS]

    def _changed(self) -> Iterator[tuple[Any, str, Any]]:
        """(owner, name, value before) of what is another now; GONE: there was none."""
        for owner, names in self._names:
            now = dict(vars(owner))
            for name, value in names.items():
                found = now.get(name, GONE)
                if found is not value and not torchs_own(found):
                    yield owner, name, value
            for name in now.keys() - names.keys() if isinstance(owner, type) else ():
                hides = any(name in vars(base) for base in owner.__mro__[1:])
                if hides and callable(now[name]) and not torchs_own(now[name]):
                    yield owner, name, GONE


# In a process that ends with its examination: what names stood for before it began.
ALONE: list[Names] = []
BUSY = threading.RLock()  # there is one standard output: one examination at a time
RUNNING: list[Before] = []  # by one thread, the outermost first


def after_fork() -> None:
    """In a process that was forked while a reader's code ran: its own ends at once."""
    global BUSY
    if RUNNING:
        if RUNNING[0].thread == threading.get_ident():
            os._exit(0)
        RUNNING[0].put_streams_back()  # of another thread, which knows nothing of it
        RUNNING.clear()
        BUSY = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=after_fork)


def never_at_exit(function: Any, *_: Any, **__: Any) -> Any:
    """Stands for atexit.register: what is examined does not run again at the end."""
    return function


@contextlib.contextmanager
def contained(folder: str | None = None) -> Iterator[Before]:
    """Run the reader's code inside: what it prints is caught, what it changes put back.

    A process that it forks ends at once, and what it registers for the end is not run.
    Put back: the streams, the working directory, the environment, the random states,
    signal handlers, timers, limits, what torch, the interpreter and the collector of
    garbage are set to, names of torch, Python and ours that were given another value,
    warnings, sys.path, sys.argv, and the modules that it imported from its own folder.
    Another thread waits until this one is done.
    """
    with BUSY:
        before = Before(folder)
        at_exit = atexit.register
        RUNNING.append(before)
        try:
            atexit.register = never_at_exit  # type: ignore[assignment]
            torch.set_num_threads(1)  # the tensors are small
            device = default_device()
            with (
                warnings.catch_warnings(),
                contextlib.nullcontext() if device is None else torch.device("cpu"),
            ):
                warnings.simplefilter("ignore")
                sys.stdin = io.StringIO()
                sys.stdout = sys.stderr = io.TextIOWrapper(
                    before.output,
                    encoding="utf-8",
                    errors="backslashreplace",
                    write_through=True,
                )
                # torch.compile runs what it is given
                os.environ["TORCHDYNAMO_DISABLE"] = "1"
                if folder is not None:
                    sys.path.insert(0, folder)
                yield before
        finally:
            RUNNING.pop()
            atexit.register = at_exit
            if ALONE:
                before.put_streams_back()
            else:
                before.put_back()


def belongs(module: Any, folder: str | None) -> bool:
    """Whether a module came from the reader's folder (installed packages did not)."""
    file = getattr(module, "__file__", None)
    if folder is None or not file:
        return False
    inside = os.path.abspath(file).startswith(os.path.join(folder, ""))
    return inside and "site-packages" not in file and not file.startswith(sys.prefix)
