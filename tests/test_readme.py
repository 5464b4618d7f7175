"""README's table, sample and commands, held against the program."""

import re
import shlex

import pytest
from program import ROOT, Ran, main, one_step

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
    after = README.split("$ python -m steps.step15\n")[1]
    sample = re.split(r"(?m)^(?=\S)", after)[0]  # up to the next line of the text
    lines = [line.strip() for line in sample.splitlines()]
    shown = " ".join(line for line in lines if line != "...").split()
    assert len(shown) > 40
    assert " ".join(shown) in " ".join(whole_run.out.split())


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
