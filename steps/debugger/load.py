"""Run a reader's file as Python would, within a time, and tell what came of it."""

import contextlib
import io
import linecache
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from importlib.util import decode_source
from pathlib import Path
from types import ModuleType
from typing import Any

from steps.debugger.contain import contained, in_main_thread
from steps.debugger.result import Diagnosis
from steps.errors import UserError
from steps.pytorch import nn, torch
from steps.walk.source import trace_of

LARGEST = 4 * 2**20  # bytes of a file; of one without end no more is read


class TooLong(BaseException):
    """The reader's code did not come back; no Exception, so that none catches it."""


class TooMuch(BaseException):
    """It asked for more memory than it can have; no Exception either."""


def too_long(timeout: float) -> str:
    return (
        f"did not come back within {timeout:g} seconds (an endless loop, or a very "
        "large module?); --timeout gives it more"
    )


def unless_memory(error: BaseException) -> None:
    """Raise TooMuch where `error` says that memory ran out, which is no fault."""
    said = str(error) if type(error) is RuntimeError else ""
    lacking = "can't allocate memory" in said or "not enough memory" in said
    if lacking or isinstance(error, MemoryError | torch.OutOfMemoryError):
        raise TooMuch from error


def failed(error: BaseException) -> str:
    """What is said of a fault of ours."""
    return (
        f"the debugger failed: {first_line(error)}. That is its fault, not the file's: "
        "please report it to those you have it from, with the file and the traceback"
    )


def ended_by(error: BaseException, file: str, timeout: float) -> str:
    """What is said where an error ended an examination; of one of ours, ""."""
    if isinstance(error, TooLong):
        return too_long(timeout)
    if isinstance(error, UserError):
        return str(error)
    said = f"it raises {first_line(error)}"
    try:
        unless_memory(error)
    except TooMuch as much:
        error = much
    if isinstance(error, TooMuch):
        error = error.__cause__ or error
        said = f"it needs more memory than it can have: {first_line(error)}"
    elif trace_of(error, file) is None:
        return ""
    place = trace_of(error, file)
    return f"line {place.tb_lineno}: {said}" if place else said


def guarded(path: str, timeout: float, find: Callable[[], Diagnosis]) -> Diagnosis:
    """What `find` finds of a file by running it; whatever that raises is told.

    The traceback of a fault of ours is printed.
    """
    file = Path(path).absolute()
    broken: BaseException | None = None
    with contained(str(file.parent)) as before:
        try:
            with limited(timeout):
                result = find()
        except BaseException as error:  # the next file is still examined
            said = ended_by(error, str(file), timeout)
            if isinstance(error, UserError):
                broken = error.__cause__  # a reader's mistake has none
            elif not said and isinstance(error, KeyboardInterrupt):
                raise  # the reader's own
            elif not said:
                broken, said = error, failed(error)
            result = Diagnosis(path, "cannot tell", message=said)
        replaced = before.replaced()
    if replaced:  # that may be why, and is not ours
        more = f" and {len(replaced) - 1} more" if replaced[1:] else ""
        message = f"it replaces {replaced[0]}{more}, on which a verdict would rest"
        result = Diagnosis(path, "cannot tell", message=message)
    elif broken is not None:
        traceback.print_exception(broken)
    if before.output.written and result.examined:
        result.notes.append(
            "What the file printed while it ran was kept out of this report."
        )
    result.file, result.node = path, None
    return result


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise TooLong inside, once `seconds` have passed."""
    if hasattr(signal, "setitimer") and in_main_thread():

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


def read(path: Path) -> bytes:
    """The bytes of a file."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}") from None
    except TooLong:
        raise UserError("cannot be read: nothing came within the time limit") from None
    if len(data) > LARGEST:
        raise UserError(f"is larger than {LARGEST >> 20} MiB: no file of Python is")
    return data


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
    data = read(path)
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
    # What is told of its lines is told of these, whatever the file is by then.
    lines = io.StringIO(text if text.endswith("\n") else text + "\n").readlines()
    linecache.cache[file] = len(text), None, lines, file
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
