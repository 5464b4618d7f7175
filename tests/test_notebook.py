"""A notebook, run as a reader of the book runs one: steps and findings in its cells."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from program import ROOT, command

from steps import show

BOOK = """
import torch
from torch import nn

class MyAttention(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, d_out // num_heads
        self.q = nn.Linear(d_in, d_out, bias=False)
        self.k = nn.Linear(d_in, d_out, bias=False)
        self.v = nn.Linear(d_in, d_out, bias=False)
        self.out = nn.Linear(d_out, d_out)
        self.register_buffer("mask", torch.triu(
            torch.ones(context_length, context_length), diagonal=1).bool())

    def forward(self, x):
        b, t, _ = x.shape
        queries = self.q(x).view(b, self.num_heads, t, self.head_dim)
        keys = self.k(x).view(b, t, self.num_heads, self.head_dim).transpose(1, 2)
        values = self.v(x).view(b, t, self.num_heads, self.head_dim).transpose(1, 2)
        scores = queries @ keys.transpose(2, 3)
        scores = scores.masked_fill(self.mask[:t, :t], -torch.inf)
        weights = torch.softmax(scores / self.head_dim**0.5, dim=-1)
        contexts = (weights @ values).transpose(1, 2).reshape(b, t, -1)
        return self.out(contexts)
"""
CELLS = (
    BOOK,
    "from steps.debugger import diagnose\ndiagnose(MyAttention)",
    "from steps import show\nshow(15)",
    "show(7, follow='river', heads=3)",
)


class Tables(HTMLParser):
    """The text of every row of a table, and the classes of rows and cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[tuple[str, list[str]]] = []
        self.open: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        kind = dict(attrs).get("class") or ""
        self.loaded += [name for name, _ in attrs if name in ("src", "href")]
        if tag == "script":
            self.loaded.append(tag)
        if tag != "br":
            self.open.append(tag)
        if tag == "tr":
            self.rows.append((kind, []))
        elif tag in ("td", "th"):
            self.rows[-1][1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open):
            self.rows[-1][1][-1] += data


@pytest.fixture(scope="module")
def outputs() -> list[Any]:
    """What the cells show."""
    import nbclient
    import nbformat

    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS]
    )
    runs = {"metadata": {"path": str(ROOT)}}
    nbclient.NotebookClient(notebook, timeout=120, resources=runs).execute()
    return [cell.outputs for cell in notebook.cells]


def shown(output: list[Any]) -> dict[str, str]:
    (result,) = [part for part in output if part.output_type == "execute_result"]
    assert [part for part in output if part.output_type == "stream"] == []
    return result.data


def test_a_finding_is_a_table_with_the_first_wrong_line(outputs: list[Any]) -> None:
    data = shown(outputs[1])
    tables = Tables(data["text/html"])
    (wrong,) = [cells for kind, cells in tables.rows if kind == "first"]
    assert any("queries" in cell for cell in wrong)
    assert "first wrong" in " ".join(wrong)
    assert "Proof: " in data["text/html"]
    assert "Right:" not in data["text/html"]
    assert tables.loaded == []
    assert "first wrong" in data["text/plain"]  # for a notebook without HTML


def test_a_change_that_mends_stands_beside_the_line() -> None:
    from steps.debugger import diagnose
    from steps.debugger.planted import REPAIR, PlantedAttention

    rows = Tables(diagnose(PlantedAttention)._repr_html_()).rows
    changes = [cells for _, cells in rows if len(cells) == 3][1:]
    assert {int(line): new for line, _, new in changes} == {
        line: new.strip() for line, new in REPAIR.items()
    }
    assert all(".view(b, H, num_tokens, D)" in old for _, old, _ in changes)


def test_a_step_is_shown_with_its_tables(outputs: list[Any]) -> None:
    data = shown(outputs[2])
    tables = Tables(data["text/html"])
    rows = [cells for _, cells in tables.rows]
    bank = ["bank", "-0.4786", "0.0085", "-0.3658", "-0.1932", "-0.2441", "-0.2741"]
    assert bank in rows
    assert ["bank", *bank[4:]] in rows  # in its head
    assert tables.loaded == []
    assert data["text/plain"].startswith("Step 15: project, view, transpose")


def test_flags_are_those_of_the_command_line(outputs: list[Any]) -> None:
    assert "Step 7" in shown(outputs[3])["text/plain"]
    for flags, says in (
        ({"heads": 0}, "--heads"),
        ({"follow": "moon"}, "'moon' is not in the text"),
        ({"nose": 1}, "--nose"),
    ):
        with pytest.raises(ValueError, match=says):
            show(15, **flags)
    with pytest.raises(ValueError, match="there is no step 99"):
        show(99)


def test_the_styles_of_a_cell_stay_in_it(outputs: list[Any]) -> None:
    """Every rule is for what is inside the fragment, so no other cell changes."""
    style = shown(outputs[2])["text/html"].split("<style>")[1].split("</style>")[0]
    for rule in style.replace("@media (prefers-color-scheme: dark) {", "").split("}"):
        selectors = rule.split("{")[0].strip()
        assert not selectors or selectors.startswith(".mha"), selectors


def test_importing_steps_stays_light() -> None:
    loaded = "import sys, steps; sys.exit(bool({'torch', 'argparse'} & {*sys.modules}))"
    assert command("-c", loaded).code == 0
    assert Path(sys.modules["steps"].__file__ or "").name == "__init__.py"
