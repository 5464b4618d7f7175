"""Run a reader's file as Python would, and leave everything as it was found."""

import atexit
import contextlib
import io
import linecache
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from importlib.util import decode_source
from pathlib import Path
from types import ModuleType
from typing import Any

from steps.errors import UserError
from steps.pytorch import nn, torch
from steps.walk.source import trace_of


class TooLong(BaseException):
    """The reader's code did not come back; no Exception, so that none catches it."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise TooLong inside, once `seconds` have passed."""
    if (
        hasattr(signal, "setitimer")
        and threading.current_thread() is threading.main_thread()
    ):

        def stop(*_: Any) -> None:
            raise TooLong

        before = signal.signal(signal.SIGALRM, stop)
        # Again, for a bare except.
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3), 0.2)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        return
    import ctypes

    thread = ctypes.c_ulong(threading.get_ident())
    over = threading.Event()

    def interrupt() -> None:
        if not over.wait(seconds):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                thread, ctypes.py_object(TooLong)
            )

    watch = threading.Thread(target=interrupt, daemon=True)
    watch.start()
    try:
        yield
    finally:
        over.set()


class Printed(io.StringIO):
    """What the reader's code prints; it has no terminal and no file behind it."""

    def close(self) -> None:
        """Stay open: the reader's code may close what it takes for its own output."""


EXAMINING = threading.Event()  # set while a reader's code runs
if hasattr(os, "register_at_fork"):  # a process that it forks ends at once
    os.register_at_fork(
        after_in_child=lambda: os._exit(0) if EXAMINING.is_set() else None
    )


def never_at_exit(function: Any, *_: Any, **__: Any) -> Any:
    """Stands for atexit.register: what is examined does not run again at the end."""
    return function


def default_device() -> torch.device | None:
    """Where tensors are made when nothing is said; None: torch's own default, the CPU.

    Asked only where something has loaded what it takes to have another.
    """
    known = "torch.utils._device" in sys.modules
    device = torch.get_default_device() if known else None
    return None if device is None or device.type == "cpu" else device


@contextlib.contextmanager
def contained(folder: str | None = None) -> Iterator[Printed]:
    """Run the reader's code inside: what it prints is caught, what it changes put back.

    A process that it forks ends at once, and what it registers for the end is not run.
    Put back: the random states, torch's default dtype, device and gradient mode, the
    working directory, the environment, warnings, sys.path, sys.argv, sys.stdin, and the
    modules that it imported from its own folder.
    """
    printed = Printed()
    saved_modules = dict(sys.modules)
    saved = (list(sys.path), list(sys.argv), sys.stdin, dict(os.environ), os.getcwd())
    dtype, grad, threads = (
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.get_num_threads(),
    )
    deterministic = torch.are_deterministic_algorithms_enabled()
    python_random, torch_random = random.getstate(), torch.get_rng_state()
    numpy = sys.modules.get("numpy")
    numpy_random = (
        numpy.random.get_state() if numpy and hasattr(numpy, "random") else None
    )
    device = default_device()
    at_exit, outer = atexit.register, EXAMINING.is_set()
    try:
        EXAMINING.set()
        atexit.register = never_at_exit  # type: ignore[assignment]
        torch.set_num_threads(1)  # the tensors are small
        with (
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
            warnings.catch_warnings(),
            contextlib.nullcontext() if device is None else torch.device("cpu"),
        ):
            warnings.simplefilter("ignore")
            sys.stdin = io.StringIO()
            os.environ["TORCHDYNAMO_DISABLE"] = (
                "1"  # torch.compile runs what it is given
            )
            if folder is not None:
                sys.path.insert(0, folder)
            yield printed
    finally:
        atexit.register = at_exit
        if not outer:
            EXAMINING.clear()
        path, sys.argv, sys.stdin, environment, cwd = saved
        sys.path[:] = path
        if dict(os.environ) != environment:
            os.environ.clear()
            os.environ.update(environment)
        with contextlib.suppress(OSError):
            os.chdir(cwd)
        if torch.get_default_dtype() != dtype:
            torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        if torch.are_deterministic_algorithms_enabled() != deterministic:
            torch.use_deterministic_algorithms(deterministic)
        if default_device() != device:
            torch.set_default_device(device)
        random.setstate(python_random)
        torch.set_rng_state(torch_random)
        if numpy_random is not None:
            numpy.random.set_state(numpy_random)  # type: ignore[union-attr]
        for name, module in list(sys.modules.items()):
            if saved_modules.get(name) is not module and belongs(module, folder):
                if name in saved_modules:
                    sys.modules[name] = saved_modules[name]
                else:
                    del sys.modules[name]


def belongs(module: Any, folder: str | None) -> bool:
    """Whether a module came from the reader's folder (installed packages did not)."""
    file = getattr(module, "__file__", None)
    if folder is None or not file:
        return False
    inside = os.path.abspath(file).startswith(os.path.join(folder, ""))
    return inside and "site-packages" not in file and not file.startswith(sys.prefix)


def import_file(path: Path) -> tuple[ModuleType, str]:
    """Execute a file under its own name, not "__main__".

    Returns the module and, where running it raised before its end, what; the classes
    defined before that are in the module. Raises UserError where the file cannot be
    read or parsed, or where an import fails.
    """
    file = str(path)
    if path.suffix == ".ipynb":
        raise UserError(
            "is a notebook: save its code as a .py file, or use diagnose there"
        )
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            text = decode_source(data)
            code = compile(text, file, "exec", dont_inherit=True)
    except SyntaxError as error:
        at = f"line {error.lineno}: " if error.lineno else ""
        raise UserError(f"{at}syntax error: {error.msg}") from None
    except (ValueError, MemoryError, RecursionError) as error:
        raise UserError(f"is not Python source: {first_line(error)}") from None
    linecache.checkcache(file)
    name = path.stem
    if name in sys.modules or not name.isidentifier():
        name = f"reader_{name}"
    module = ModuleType(name)
    module.__file__ = file
    sys.modules[name] = module
    try:
        exec(code, module.__dict__)
    except SystemExit as error:  # what was defined before is there
        place = trace_of(error, file)
        at = f"line {place.tb_lineno}: " if place else ""
        return module, f"{at}running it ends with {first_line(error)}"
    except Exception as error:
        place = trace_of(error, file)
        at = f"line {place.tb_lineno}: " if place else ""
        if isinstance(error, ModuleNotFoundError):
            raise UserError(
                f"{at}imports {error.name!r}, which is not installed"
            ) from None
        if isinstance(error, ImportError):
            raise UserError(f"{at}running it raises {first_line(error)}") from None
        return module, f"{at}running it raises {first_line(error)}"
    return module, ""


def first_line(error: BaseException) -> str:
    """The error's class and the first line of what it says."""
    try:
        text = str(error).strip().split("\n")[0]
    except Exception:  # the reader's own class of error
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


ATTENTION = ("multi", "mha"), ("attention", "attn"), ("head",)


def rank(cls: type) -> int:
    """How much a class's name promises attention: 0 most."""
    name = cls.__name__.lower()
    for position, words in enumerate(ATTENTION):
        if any(word in name for word in words):
            return position
    return len(ATTENTION)


def classes_in(module: ModuleType) -> list[type]:
    """The nn.Module classes of the file that have a forward of their own."""
    found = []
    for value in vars(module).values():
        if not (isinstance(value, type) and issubclass(value, nn.Module)):
            continue
        own = any(
            "forward" in vars(base)
            for base in value.__mro__
            if base.__module__ == module.__name__
        )
        if value.__module__ == module.__name__ and own and value not in found:
            found.append(value)
    return found


def ordered(classes: list[type]) -> list[type]:
    """Most likely to be the attention first; of equals the last one written."""
    last_first = list(reversed(classes))
    return sorted(last_first, key=rank)
