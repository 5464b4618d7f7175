"""The command line: bad input, missing packages, pipes, colour, what is imported."""

import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from program import PATIENCE, PROGRAM, ROOT, Ran, command, main, one_step, shell

from steps import progress
from steps.walk.order import titles

# Python imports sitecustomize at start-up: here it makes a package impossible to find.
HIDE = """\
import sys

class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hide())
"""


def without(package: str, folder: Path, *arguments: str) -> Ran:
    """Run Python where `package` is not installed."""
    (folder / "sitecustomize.py").write_text(HIDE.format(package=package))
    return command(*arguments, PYTHONPATH=str(folder))


def offline(folder: Path, *arguments: str) -> Ran:
    """Run Python with an empty tiktoken cache and no network."""
    nowhere = "http://127.0.0.1:9"
    return command(
        *arguments,
        TIKTOKEN_CACHE_DIR=str(folder),
        https_proxy=nowhere,
        HTTPS_PROXY=nowhere,
        no_proxy="",
        NO_PROXY="",
    )


def refused(ran: Ran, *parts: str) -> None:
    """Exit 2, nothing on standard output, one line that has these parts."""
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.endswith("\n")
    assert ran.err.count("\n") == 1
    assert "Traceback" not in ran.err
    for part in parts:
        assert part in ran.err


BAD = [
    (("--text", ""), ("--text", "two tokens")),
    (("--text", "  \n "), ("--text", "two tokens")),
    (("--text", "bank"), ("--text", "two or more")),
    (("--text",), ("--text",)),
    (("--heads", "0"), ("--heads", "from 1 to")),
    (("--heads", "-2"), ("--heads", "from 1 to")),
    (("--heads", "two"), ("--heads", "from 1 to", "'two'")),
    (("--heads", "2.0"), ("--heads", "from 1 to")),
    (("--heads", ""), ("--heads", "from 1 to")),
    (("--heads", "1000000"), ("--heads", "from 1 to")),
    (("--heads", "9" * 5000), ("--heads", "from 1 to")),
    (("--head-dim", "0"), ("--head-dim", "from 1 to")),
    (("--head-dim", "x"), ("--head-dim", "from 1 to")),
    (("--heads", "256", "--head-dim", "1024"), ("--heads", "--head-dim", "at most")),
    (("--d-in", "0"), ("--d-in", "from 1 to")),
    (("--d-in", "x"), ("--d-in", "from 1 to")),
    (("--dropout", "1"), ("--dropout", "0 to below 1")),
    (("--dropout", "-0.1"), ("--dropout", "0 to below 1")),
    (("--dropout", "nan"), ("--dropout", "0 to below 1")),
    (("--dropout", "half"), ("--dropout", "0 to below 1")),
    (("--seed", "-1"), ("--seed", "from 0 to")),
    (("--seed", "1.5"), ("--seed", "from 0 to")),
    (("--seed", str(2**64)), ("--seed", "from 0 to")),
    (("--follow", "cat"), ("--follow", "'cat'", "The, river, bank, was")),
    (("--follow", ""), ("--follow", "The, river, bank, was")),
    (("--follow", "muddy"), ("--follow", "target", "The, river, bank, was")),
    (("--follow", "a\nb"), ("--follow", "The, river, bank, was")),
    (("--size", "3"), ("--size",)),
    (("--head", "3"), ("--head",)),  # no abbreviations: it might mean two flags
    (("15",), ("15",)),
    (("--x\ny",), ("--x\\ny",)),
    (("--heads=--",), ("--heads", "one argument")),
]


@pytest.mark.parametrize(("flags", "parts"), BAD)
def test_bad_input(flags: tuple[str, ...], parts: tuple[str, ...]) -> None:
    refused(main(*flags), *parts)
    refused(one_step(titles()[-1].number, *flags), *parts)


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (("--force",), ("--force", "--page")),
        (("--build", "x"), ("--build", "--check")),
        (("--timeout", "3"), ("--timeout", "--check")),
        (("--no-causal",), ("--no-causal:", "--check")),
        (("--timeout", "30"), ("--timeout:", "--check")),  # at its default, too
        (("--check", "a.py", "--heads", "2"), ("--heads:", "--check")),
        (("--check", "a.py", "--dropout=0.5"), ("--dropout:", "--check")),
        (("--check",), ("--check", "files")),
        (("--check", ""), ("--check", "files")),
        (("--check", "--json"), ("--check", "files")),
        (("--check", "a.py", "--page", ""), ("--page",)),
        (("--check", "a.py", "--jsn"), ("--jsn",)),
        (("a.py", "--json"), ("a.py",)),
        (("--list", "--all"), ("--all",)),
        (("--check", "a.py", "--heads", "3"), ("--heads", "--check")),
        (("--check", "a.py", "--list"), ("--list", "--check")),
        (("--json", "--list"), ("--list", "--json")),
    ],
)
def test_flags_that_do_not_go_together(
    flags: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    refused(main(*flags), *parts)


def test_names_that_are_no_characters_are_shown_as_escapes(tmp_path: Path) -> None:
    name = f"{tmp_path}/a\n\x1b[31m\udcff.py"
    shown = "a\\n\\x1b[31m\\udcff.py"
    ran = main("--check", name)
    assert (ran.code, ran.err) == (2, "")
    assert shown in ran.out.replace("\n", "")
    assert json.loads(main("--check", "--json", name).out)["file"] == name
    for flags in (("--check", name, "--page", name), ("--page", f"{name}/a.html")):
        refused(main(*flags), shown)
    refused(one_step(24, "--weights", name), shown)


def test_one_form_of_a_step_at_a_time() -> None:
    refused(command("-m", "steps.step24", "--predict", "--time"), "--time")
    refused(command("-m", "steps.step24", "--time", "--processes", "2"), "--time")


@pytest.mark.skipif(os.name == "nt", reason="a shell that can close files")
def test_closed_files_are_no_error() -> None:
    for closed in (">&-", "<&-", "2>&- --follow cat"):
        ran = shell(f'exec "$@" {closed}', "-m", "steps.step2")
        assert "Traceback" not in ran.out + ran.err
        assert ran.code == (2 if "cat" in closed else 0)


@pytest.mark.skipif(os.name == "nt", reason="a shell that can close files")
@pytest.mark.parametrize(
    ("stdin", "why"),
    [("<&-", "closed"), ("0>/dev/null", "descriptor")],
)
def test_answers_that_cannot_be_read(stdin: str, why: str) -> None:
    ran = shell(f'exec "$@" {stdin}', "-m", "steps.step2", "--predict")
    refused(ran, "--predict: standard input", why)


def test_files_to_check_stand_anywhere(tmp_path: Path) -> None:
    """--check --json FILE, as a person types it."""
    names = [str(tmp_path / name) for name in ("a.py", "b.py")]
    usual = main("--check", *names, "--json")
    assert usual.code == 2  # they are not there
    assert [json.loads(line)["file"] for line in usual.out.splitlines()] == names
    assert main("--check", "--json", *names) == usual
    assert main("--check", names[0], "--json", names[1]) == usual
    assert main("--json", "--check", *names) == usual


def test_bad_input_from_a_shell() -> None:
    refused(command(PROGRAM, "--heads", "0"), "gptversion.py: --heads")
    refused(command(PROGRAM, "--follow", "cat"), "gptversion.py: --follow")
    refused(command("-m", "steps.step2", "--dropout", "1"), "steps.step2: --dropout")
    refused(command("-m", "steps.step2", "--text", "a"), "steps.step2: --text")


def test_text_that_is_not_utf8() -> None:
    refused(main("--text", "The river \udcff bank"), "--text", "UTF-8")


def test_very_long_text_is_refused_before_anything_is_made() -> None:
    refused(main("--text", "the cat " * 20_000), "--text", "at most")


def test_a_followed_token_that_occurs_twice() -> None:
    flags = ("--text", "The bank and the bank by the river", "--follow", "bank")
    whole = main(*flags)
    assert whole.code == 0
    assert whole.err == ""
    assert "'bank' occurs 2 times; the first, at index 1, is followed." in whole.out
    assert 'index 1, where "bank" is the input' in whole.out


@pytest.mark.parametrize(
    "text", ["The muddy zyzzyva bank", "Die Bank am Fluß", "The bank 🙂"]
)
def test_text_beyond_the_table_without_a_network(text: str, tmp_path: Path) -> None:
    refused(offline(tmp_path, PROGRAM, "--text", text), "--text", "TIKTOKEN_CACHE_DIR")
    assert list(tmp_path.iterdir()) == []  # nothing half done


def test_the_default_text_needs_no_network(tmp_path: Path, whole_run: Ran) -> None:
    assert offline(tmp_path, PROGRAM) == whole_run


def test_torch_is_missing(tmp_path: Path) -> None:
    for arguments in ([PROGRAM], [PROGRAM, "--json"], ["-m", "steps.step3"]):
        refused(
            without("torch", tmp_path, *arguments),
            "torch is not installed",
            "pip install -r requirements.txt",
        )


def test_tiktoken_is_missing(tmp_path: Path) -> None:
    for arguments in ([PROGRAM], ["-m", "steps.step1"]):
        refused(
            without("tiktoken", tmp_path, *arguments),
            "tiktoken is not installed",
            "pip install -r requirements.txt",
        )


LIBRARY = "libtorch_cpu.so: cannot open shared object file: No such file or directory"


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("import a_package_that_torch_needs", "'a_package_that_torch_needs'"),
        (f"raise OSError({LIBRARY!r})", "libtorch_cpu.so"),
        ("", "cannot import name 'nn'"),
    ],
)
def test_a_broken_torch_is_not_called_missing(
    source: str, part: str, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text(source)
    for arguments in ([PROGRAM], ["-m", "steps.step3"]):
        ran = command(*arguments, PYTHONPATH=str(tmp_path))
        refused(
            ran, "torch is only half installed", part, "--force-reinstall", " torch"
        )


@pytest.mark.parametrize(
    ("folder", "part"),
    [("tiktoken", "cannot import name 'Encoding'"), ("tiktoken_ext", "openai_public")],
)
def test_a_broken_tiktoken_is_not_called_missing(
    folder: str, part: str, tmp_path: Path
) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "__init__.py").touch()
    ran = command("-m", "steps.step1", PYTHONPATH=str(tmp_path))
    refused(ran, "tiktoken is only half installed", part, "--force-reinstall")


def test_what_the_download_needs_is_missing(tmp_path: Path) -> None:
    """tiktoken imports requests only then."""
    (tmp_path / "cache").mkdir()
    cache = {"TIKTOKEN_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(tmp_path)}
    (tmp_path / "sitecustomize.py").write_text(HIDE.format(package="requests"))
    ran = command("-m", "steps.step1", "--text", "the zyzzyva", **cache)
    refused(ran, "tiktoken is only half installed", "'requests'")


def test_another_torch_is_told_once() -> None:
    pretend = "from steps.pytorch import torch; torch.__version__ = '2.6.0+cpu'"
    ran = command("-c", f"{pretend}; from steps.command import main; main([])")
    assert ran.code == 0
    note = "note: the published numbers are from torch 2.13.0; this is 2.6.0+cpu\n"
    assert ran.err == note


def test_torch_warnings_other_than_numpys_are_shown(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(
        "import warnings\n"
        "warnings.warn('Failed to initialize NumPy: No module named numpy')\n"
        "warnings.warn('something else')\n"
        "nn = None\n"
    )
    ran = command("-c", "import steps.pytorch", PYTHONPATH=str(tmp_path))
    assert "something else" in ran.err
    assert "Failed to initialize NumPy" not in ran.err


def test_what_does_not_need_torch_does_not_import_it(tmp_path: Path) -> None:
    for arguments in (
        [PROGRAM, "--list"],
        [PROGRAM, "--help"],
        ["-m", "steps.step1"],
        ["-m", "steps.step2"],
    ):
        ran = without("torch", tmp_path, *arguments)
        assert (ran.code, ran.err) == (0, "")
        assert ran.out == command(*arguments).out


def test_list_and_help_need_no_package_at_all(tmp_path: Path) -> None:
    for flag in ("--list", "--help"):
        ran = without("tiktoken", tmp_path, "-S", PROGRAM, flag)
        assert (ran.code, ran.err) == (0, "")


def test_list_has_every_step_with_its_headings() -> None:
    lines = iter(main("--list").out.splitlines())
    for title in titles():
        headings = title.headings or ("",)
        first, *more = [next(lines) for _ in headings]
        assert re.match(rf" *{title.number}  {re.escape(title.title)}( |$)", first)
        for line, heading in zip([first, *more], headings, strict=True):
            assert line.endswith(heading)
    assert list(lines) == []


def test_help_names_every_flag() -> None:
    out = main("--help").out
    for flag in ("text", "d-in", "heads", "head-dim", "dropout", "seed", "follow"):
        assert f"--{flag} " in out
    assert "--list" in out
    assert "--json" in out


@pytest.mark.parametrize(
    "arguments", [[PROGRAM], [PROGRAM, "--quiet", "--json"], [PROGRAM, "--list"]]
)
def test_a_closed_pipe_ends_quietly(arguments: list[str]) -> None:
    """As with `| head -1`: the reader of the pipe leaves after one byte."""
    running = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    assert running.stdout is not None
    assert running.stderr is not None
    os.read(running.stdout.fileno(), 1)
    running.stdout.close()
    error = running.stderr.read()
    running.stderr.close()
    assert (running.wait(timeout=60), error) == (0, b"")


def test_a_closed_pipe_does_not_hide_a_fault(tmp_path: Path) -> None:
    """--check bad.py more.py | head -1, of which every file counts."""
    planted, none = str(ROOT / "steps" / "debugger" / "planted.py"), tmp_path / "no.py"
    running = subprocess.Popen(
        [sys.executable, PROGRAM, "--quiet", "--check", str(none), planted, str(none)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    assert running.stdout is not None
    running.stdout.close()
    assert running.communicate(timeout=100)[1] == b""
    assert running.returncode == 1


def on_a_terminal(*arguments: str, **environment: str) -> str:
    """What Python writes when its standard output is a terminal."""
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=theirs,
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm", **environment},
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux's way to say that the other end is closed
            part = b""
        if not part:
            break
        written += part
    os.close(ours)
    assert running.wait(timeout=60) == 0
    return written.decode().replace("\r\n", "\n")


def test_colour_on_a_terminal_only_and_only_as_an_extra() -> None:
    module = "steps.step15"
    plain = command("-m", module).out
    wide = {"COLUMNS": "100"}
    coloured = on_a_terminal("-m", module, NO_COLOR="", **wide)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain
    assert on_a_terminal("-m", module, NO_COLOR="1", **wide) == plain
    assert on_a_terminal("-m", module, TERM="dumb", NO_COLOR="", **wide) == plain


@pytest.mark.parametrize(("columns", "width"), [(40, 80), (87, 87), (200, 120)])
def test_the_width_is_the_terminals(columns: int, width: int) -> None:
    out = on_a_terminal("-m", "steps.step15", NO_COLOR="1", COLUMNS=str(columns))
    heading = next(line for line in out.split("\n") if line.startswith("Step 15"))
    assert len(heading) == width == max(map(len, out.split("\n")))


LONG_WORK = {
    ("--json", "--steps", "1-2"): ["step 1 of 2", "step 2 of 2"],
    ("--check", "no.py", "none.py", "nor.py"): [
        "1 of 3 files examined",
        "2 of 3 files examined",
    ],
}


@pytest.mark.parametrize("flags", LONG_WORK)
def test_how_far_long_work_is(
    flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pipe a line a stage, on standard error; nothing soon, nor with --quiet."""
    soon = main(*flags)
    assert soon.err == ""
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    late = main(*flags)
    assert late.err.splitlines() == LONG_WORK[flags]
    assert (late.out, late.code) == (soon.out, soon.code)
    assert main("--quiet", *flags) == soon
    assert main(*flags) == late  # only that once


def test_on_a_terminal_it_is_told_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.Progress() as told:
        told("time", "round 1")
        told("time", "round 2\n" + "x" * 100)
    assert isinstance(sys.stderr, Terminal)
    first, second, last = sys.stderr.getvalue().split("\r\033[K")[1:]
    assert first == "time: round 1"
    assert second.startswith("time: round 2\\n")
    assert len(second) < 80
    assert last == ""
    assert "\n" not in sys.stderr.getvalue()


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_a_console_that_lacks_a_character(encoding: str) -> None:
    text = "The 河 bank 🙂 was muddy"
    ran = subprocess.run(
        [sys.executable, "-m", "steps.step2", "--text", text],
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        timeout=PATIENCE,
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert 'where "bank" is the input' in ran.stdout.decode(encoding)
