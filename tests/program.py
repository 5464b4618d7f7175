"""The program as a reader runs it, for the tests."""

import io
import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = str(ROOT / "gptversion.py")
PATIENCE = 400  # seconds for a process; pytest waits longer (pyproject.toml)


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str


def command(
    *arguments: str, cwd: Path = ROOT, given: bytes = b"", **environment: str
) -> Ran:
    """Run Python with these arguments, from the project's folder, as a reader would.

    given: what it reads from standard input.
    """
    return _ran([sys.executable, *arguments], cwd, given, environment)


def shell(script: str, *arguments: str, **environment: str) -> Ran:
    """A line of sh in which "$@" is Python with these arguments."""
    line = ["sh", "-c", script, "sh", sys.executable, *arguments]
    return _ran(line, ROOT, b"", {"PYTHONUNBUFFERED": "", **environment})


def _ran(run: list[str], cwd: Path, given: bytes, environment: dict[str, str]) -> Ran:
    done = subprocess.run(
        run,
        cwd=cwd,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **environment},
        input=given,
        capture_output=True,
        timeout=PATIENCE,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def within(run: Callable[..., Any], *arguments: Any) -> Ran:
    """Run a command's function in this process: no second import of torch."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
        run(*arguments)
    return Ran(int(ended.value.code or 0), out.getvalue(), err.getvalue())


def main(*flags: str) -> Ran:
    """`python gptversion.py FLAGS` in this process."""
    from steps.command import main

    return within(main, list(flags))


def one_step(number: int, *flags: str) -> Ran:
    """`python -m steps.stepN FLAGS` in this process."""
    from steps.walk.command import step

    return within(step, str(ROOT / "steps" / f"step{number}.py"), list(flags))


def as_main(number: int) -> Ran:
    """`python -m steps.stepN` in this process: the file's own last lines are run."""
    argv, sys.argv = sys.argv, [f"steps/step{number}.py"]
    known = sys.modules.pop(f"steps.step{number}", None)
    try:
        return within(runpy.run_module, f"steps.step{number}", None, "__main__")
    finally:
        sys.argv = argv
        if known is not None:
            sys.modules[f"steps.step{number}"] = known


def document(*flags: str) -> dict[str, Any]:
    """The walk as strict JSON: a non-finite number in it is an error."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    ran = main("--json", "--quiet", *flags)
    assert (ran.code, ran.err) == (0, "")
    return json.loads(ran.out, parse_constant=refuse)
