"""The set-up: the Makefile's own errors, and that what is documented is there."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from program import ROOT

from steps.walk.order import titles

needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is missing")


def make(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    # As a reader's shell would: `make test` hands its own flags and level down.
    outer = {"MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS", "N", "ARGS"}
    return subprocess.run(
        ["make", *arguments],
        cwd=cwd,
        env={name: value for name, value in os.environ.items() if name not in outer},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )


@needs_make
@pytest.mark.parametrize("number", ["99", "", "0", "x", "1 2", "%", "s", "-1"])
def test_make_step_with_a_number_that_is_no_step(number: str) -> None:
    ran = make("step", f"N={number}")
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr.count("\n") == 1
    assert f"there are 1 to {titles()[-1].number}" in ran.stderr


@needs_make
def test_make_alone_tells_every_target() -> None:
    alone = make()
    assert (alone.returncode, alone.stderr) == (0, "")
    for target in ("run", "step", "page", "test", "lint", "bench"):
        assert f"make {target} " in alone.stdout


@needs_make
def test_an_old_python_is_refused_in_one_line(tmp_path: Path) -> None:
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\nexit 1\n")  # what the version check of an old one gives
    old.chmod(0o755)
    for name in ("Makefile", "requirements.txt"):
        shutil.copy(ROOT / name, tmp_path)
    ran = make("run", f"PYTHON={old}", cwd=tmp_path)
    assert ran.returncode == 2
    assert ran.stderr.startswith("Python 3.10 or later is needed")
    assert not (tmp_path / ".venv").exists()


@needs_make
def test_nothing_is_done_twice(tmp_path: Path) -> None:
    """Made once, made anew when the requirements change, and only then."""
    for name in ("Makefile", "requirements.txt"):
        shutil.copy(ROOT / name, tmp_path)
    steps = ["--dry-run", ".venv/run"]
    assert "pip install" in make(*steps, cwd=tmp_path).stdout
    (tmp_path / ".venv").mkdir()
    for stamp in ("made", "run"):
        (tmp_path / ".venv" / stamp).touch()
    assert "pip" not in make(*steps, cwd=tmp_path).stdout
    newer = (tmp_path / ".venv" / "run").stat().st_mtime + 10
    os.utime(tmp_path / "requirements.txt", (newer, newer))
    again = make(*steps, cwd=tmp_path).stdout
    assert "pip install" in again
    assert "venv .venv" not in again


def test_every_step_file_is_for_the_oldest_python() -> None:
    """Python 3.10 can read them."""
    for file in [ROOT / "gptversion.py", *(ROOT / "steps").rglob("*.py")]:
        ast.parse(file.read_text(encoding="utf-8"), feature_version=(3, 10))


def test_only_torch_and_tiktoken_are_imported() -> None:
    allowed = {*sys.stdlib_module_names, "steps", "torch", "tiktoken", "tiktoken_ext"}
    imports = re.compile(r"^\s*(?:from|import) (\w+)", re.MULTILINE)
    files = [ROOT / "gptversion.py", *(ROOT / "steps").rglob("*.py")]
    files += (ROOT / "data").glob("*.py")
    optional = {"weights.py": {"safetensors"}}  # for the reader's own checkpoint only
    for file in files:
        allowed_here = allowed | optional.get(file.name, set())
        assert set(imports.findall(file.read_text(encoding="utf-8"))) <= allowed_here, (
            file
        )


def test_requirements_are_pinned() -> None:
    lines = (ROOT / "requirements.txt").read_text(encoding="ascii").split()
    assert [line.partition("==")[0] for line in lines] == ["torch", "tiktoken"]
    assert all(re.fullmatch(r"[a-z]+==\d+(\.\d+)+", line) for line in lines)
