"""README's table, sample and commands, held against the program."""

import json
import re
import shlex
from pathlib import Path
from textwrap import dedent

import pytest
from program import ROOT, Ran, main, one_step

from steps.debugger import planted
from steps.walk.order import titles

README = (ROOT / "README.md").read_text(encoding="utf-8")
ROWS = re.findall(
    r"(?m)^\| (.+?) \| (\d+) \| `python -m steps\.step(\d+)` \| `(.+?)` (\(.+?\)) \|$",
    README,
)


def test_the_table_names_headings_steps_and_shapes(walk_document: dict) -> None:
    assert len(ROWS) >= 7
    headings = {title.number: title.headings for title in titles()}
    for heading, number, module, name, shape in ROWS:
        assert number == module
        assert heading in headings[int(number)]
        tensors = walk_document["steps"][int(number) - 1]["tensors"]
        shapes = {str(tuple(t["shape"])) for t in tensors if t["name"] == name}
        assert shapes == {shape}, name


def test_the_sample_is_in_the_output(whole_run: Ran) -> None:
    lines = [line.strip() for line in after("python -m steps.step15").splitlines()]
    shown = " ".join(line for line in lines if line != "...").split()
    assert len(shown) > 40
    assert " ".join(shown) in " ".join(whole_run.out.split())


def after(prompt: str) -> str:
    """What README shows below a command, up to the next line of its own text."""
    shown = re.split(r"(?m)^(?=\S)", README.split(f"    $ {prompt}\n")[1])[0]
    return dedent(shown).strip()


def rounded(report: str) -> str:
    """A report without the last digits, which another processor may round otherwise."""
    return re.sub(r"\d\.?\d*e-1\d", "1e-15", report)


def test_the_report_is_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    ran = main("--check", "steps/debugger/planted.py")
    shown = after("python -m steps.step23 steps/debugger/planted.py")
    assert ran.code == 1
    assert rounded(shown) == rounded(ran.out.strip())


def test_the_fault_that_shapes_show_has_its_proved_change_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = Path(planted.__file__).read_text(encoding="utf-8").split("\n")
    for line, new in planted.REPAIR.items():
        lines[line - 1] = new.replace(".transpose(1, 2)", ".transpose(2, 3)")
    (tmp_path / "transposed.py").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    beginning, end = after("python -m steps.step23 transposed.py").split("\n...")
    assert end == ""
    ran = main("--check", "transposed.py")
    assert rounded(ran.out).startswith(rounded(beginning) + "\n\n")
    found = json.loads(main("--check", "transposed.py", "--json").out)
    assert {c["line"]: c["new"] for c in found["repair"]} == planted.REPAIR


def test_the_lesson_tells_what_the_debugger_finds() -> None:
    found = json.loads(main("--check", planted.__file__, "--json").out)
    assert {c["line"]: c["new"] for c in found["repair"]} == planted.REPAIR


def commands() -> list[str]:
    """The commands of README that show the walk and nothing else."""
    found = re.findall(
        r"(?m)^ {4}\S*python (gptversion\.py.*|-m steps\.step\d.*)$", README
    )
    found = [re.sub(r"\s+[#>].*", "", command) for command in found]
    special = ("--page", "--check", "--predict", "steps.step23", "steps.step24")
    return sorted({c for c in found if not any(word in c for word in special)})


@pytest.mark.parametrize("command", commands())
def test_commands_work(command: str) -> None:
    program, *flags = shlex.split(command)
    if program == "-m":
        module, *flags = flags
        ran = one_step(int(module.removeprefix("steps.step")), *flags)
    else:
        ran = main(*flags)
    assert ran.code == 0, ran.err
