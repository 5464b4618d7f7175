"""The set-up: the Makefile's own errors, and that what is documented is there."""

import ast
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from program import ROOT

from steps.walk.order import titles
from steps.walk.page import MARK

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
    for target in ("run", "step", "page", "test", "quick", "lint", "bench"):
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


# A Python that makes an environment slowly, itself again, and keeps a record.
SLOW = """\
#!/bin/sh
case "$1 $2" in
"-m venv") echo venv >>record; sleep 1; mkdir -p .venv/bin; cp python .venv/bin/ ;;
"-m pip") echo pip >>record; sleep 1 ;;
gptversion.py*) echo run >>record; test -e .venv/run ;;
*) exec '{python}' "$@" ;;
esac
"""


def fresh(folder: Path) -> None:
    """A clone in which nothing has been made yet, and `./python`, as SLOW has it."""
    for name in ("Makefile", "requirements.txt"):
        shutil.copy(ROOT / name, folder)
    python = folder / "python"
    python.write_text(SLOW.format(python=sys.executable))
    python.chmod(0o755)


@needs_make
def test_two_makes_at_once_in_a_fresh_clone(tmp_path: Path) -> None:
    fresh(tmp_path)
    with ThreadPoolExecutor() as together:
        both = list(
            together.map(
                lambda _: make("run", "PYTHON=./python", cwd=tmp_path), range(2)
            )
        )
    assert [ran.returncode for ran in both] == [0, 0]
    record = (tmp_path / "record").read_text().split()
    assert record == ["venv", "pip", "run", "run"]


@needs_make
def test_make_page_takes_another_name(tmp_path: Path) -> None:
    """argparse takes the last one; the program itself says where the page is."""
    steps = make("--dry-run", "page", 'ARGS=--page "other page.html"', cwd=ROOT).stdout
    assert '--page page.html --page "other page.html"' in steps
    assert "Open" not in steps


@needs_make
def test_make_clean_removes_what_was_made_and_nothing_else(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    folder, file = tmp_path / ".venv", tmp_path / "page.html"
    assert make("clean", cwd=tmp_path).returncode == 0
    folder.mkdir()
    file.write_text("years of work")
    assert make("clean", cwd=tmp_path).returncode == 0
    assert folder.exists()
    assert file.exists()
    (folder / "made").touch()
    file.write_text(f"<!DOCTYPE html>\n{MARK}\n<p>")
    assert make("clean", cwd=tmp_path).returncode == 0
    assert not folder.exists()
    assert not file.exists()


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
