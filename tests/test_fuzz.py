"""Any command line, and any file to examine: an exit code of three, no traceback.

FUZZ_SECONDS=600 pytest tests/test_fuzz.py looks for longer than the 16 it has here.
"""

import io
import os
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, seed, settings
from hypothesis import strategies as st
from program import Ran, main, one_step

from steps.walk import page

SECONDS = float(os.environ.get("FUZZ_SECONDS", "16"))

ODD = st.one_of(
    st.sampled_from(
        ["", " ", "-", "--", "-1", "0", "1e9", "nan", "two", "\udcff", "a\nb", "@x"]
    ),
    st.text(max_size=6).filter(lambda text: "\0" not in text),  # no argument has that
)
SENTENCES = ["The river bank was muddy", "the bank", "bank", "the cat sat on the cat"]
FILES = ["no.py", "empty.py", "folder", "odd.py", "odd.py:Attention", "a\n\udcff.py"]
PAGES = ["page.html", "folder", "no/page.html", "mine.txt", "b\n\udcff.html", "odd.py"]
VALUES = {
    "--text": st.sampled_from(SENTENCES),
    "--d-in": st.sampled_from(["1", "4", "7"]),
    "--heads": st.sampled_from(["1", "2", "3", "256"]),
    "--head-dim": st.sampled_from(["1", "3", "1024"]),
    "--dropout": st.sampled_from(["0", "0.5", "0.99"]),
    "--seed": st.sampled_from(["0", "123", str(2**63 - 1)]),
    "--follow": st.sampled_from(["bank", "The", "muddy"]),
    "--steps": st.sampled_from(["1", "2", "1-2", "1,2", "3", "15"]),
    "--page": st.sampled_from(PAGES),
    "--check": st.sampled_from(FILES),
    "--timeout": st.just("2"),
    "--jobs": st.sampled_from(["1", "2"]),
    "--build": st.sampled_from(["Attention(2)", "A(", "1"]),
}
ALONE = ["--list", "--json", "--predict", "--all", "--force", "--causal", "--no-causal"]
ALONE += ["--quiet", "--help", "-h"]


def flag(name: str) -> st.SearchStrategy[list[str]]:
    value = st.one_of(VALUES[name], VALUES[name], VALUES[name], ODD)
    apart = value.map(lambda text: [name, text])
    return st.one_of(apart, apart, value.map(lambda text: [f"{name}={text}"]))


ARGUMENTS = st.lists(
    st.one_of(
        *map(flag, VALUES),
        st.sampled_from(ALONE).map(lambda name: [name]),
        ODD.map(lambda text: [text]),
    ),
    max_size=5,
).map(lambda parts: [argument for part in parts for argument in part])

ANSWERS = st.lists(st.one_of(ODD, st.sampled_from(["1 4", "B T", "h", "s", "q"])))
SOURCES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        ["class Attention: pass", "import torch", "def f(x): return x", "("]
    )
    .flatmap(lambda start: ODD.map(lambda end: f"{start}\n{end}"))
    .map(lambda text: text.encode(errors="surrogateescape", encoding="utf-8")),
)


def held(ran: Ran, argv: list[str], folder: Path) -> None:
    """What is promised of every command."""
    note(f"{argv} -> {ran}")
    assert ran.code in (0, 1, 2)
    assert "Traceback" not in ran.out + ran.err
    assert "the debugger failed" not in ran.out
    assert ran.err.count("\n") <= 1
    if ran.code == 2 and not ran.out:  # else files were examined
        assert ran.err.endswith("\n")
        assert ran.err[:-1].isprintable()
    if ran.code != 2:
        assert ran.err == ""
    for file in folder.iterdir():
        assert not file.name.startswith(".page-")
        if file.name.endswith(".html"):
            assert file.read_text(encoding="utf-8") == page.MARK
            file.unlink()
    assert (folder / "mine.txt").read_text() == "years of work" or "--force" in argv
    (folder / "mine.txt").write_text("years of work")


def fuzz(strategies: dict[str, st.SearchStrategy], body: Callable[..., None]) -> None:
    """Try generated arguments for SECONDS; every run tries the same ones first."""
    end = time.monotonic() + SECONDS / 2
    patient = settings(
        max_examples=10,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    for number in count():
        seed(number)(patient(given(**strategies)(body)))()
        if time.monotonic() > end:
            break


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with files in it; a page without its walk."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.py").touch()
    (tmp_path / "odd.py").write_text("class Attention: pass")
    (tmp_path / "mine.txt").write_text("years of work")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(page, "whole_page", lambda settings: page.MARK)
    return tmp_path


def test_any_command_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def body(argv: list[str], answers: list[str], number: int) -> None:
        (folder / "odd.py").write_text("class Attention: pass")
        monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(answers)))
        run: Any = main if number == 0 else lambda *flags: one_step(number, *flags)
        held(run(*argv), argv, folder)

    numbers = st.sampled_from([0, 0, 0, 1, 2, 15])
    fuzz({"argv": ARGUMENTS, "answers": ANSWERS, "number": numbers}, body)


def test_any_file_to_examine(folder: Path) -> None:
    def body(source: bytes, beside: str) -> None:
        (folder / "odd.py").write_bytes(source)
        argv = ["--check", "odd.py", beside, "--timeout", "2", "--json"]
        ran = main(*argv)
        held(ran, argv, folder)
        assert ran.out.count("\n") == 2

    fuzz({"source": SOURCES, "beside": st.sampled_from(FILES)}, body)
