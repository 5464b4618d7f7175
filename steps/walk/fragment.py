"""A step as a piece of HTML that stands alone: what a notebook shows for `show(15)`.

Tables, colours and words are those of the page, without its script: what a notebook
keeps must be readable wherever it is opened.
"""

import html
import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from steps.layout import Drawing, Table, number
from steps.walk.gather import KEPT, KEPT_ELSE, some
from steps.walk.order import Block, Code, WrongTurn, statements
from steps.walk.page import read
from steps.walk.sheets import by_head, walk_axes

COLOURS = 8  # heads with a colour of their own
OWN = """.mha { font: 14px/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--paper); padding: .6rem .9rem; border-radius: .6rem; }
.mha table { border-collapse: separate; width: auto; margin: 0; }
.mha td, .mha code, .mha pre { font-family: var(--mono); }
.mha .title { font-size: 1.3em; font-weight: 600; margin: .2rem 0; }
.mha .soft { color: var(--soft); } .mha .bad { color: var(--bad); font-weight: 700; }
.mha .statement { margin: .7rem 0 0; font-weight: 600; }
.mha .sheets { margin: .2rem 0; } .mha .drawing { line-height: 1.35; }
.mha .trace td { text-align: left; padding: .05rem .6rem; white-space: nowrap; }
.mha .trace th { text-align: left; padding: .05rem .6rem; color: var(--soft); }
.mha .repair td, .mha .repair th { text-align: left; padding: .05rem .8rem .05rem 0; }
.mha .repair td:nth-child(2) { color: var(--bad); }
.mha .repair td:nth-child(3) { color: var(--good); }
.mha .trace .first td { background: var(--bad); color: var(--paper); font-weight: 700; }
.mha .trace .after td { color: var(--bad); }
.mha .wrong { border-left: 6px double var(--bad); padding-left: .8rem; }
"""


def escape(text: object) -> str:
    return html.escape(str(text))


def style() -> str:
    """The page's colours and tables, for the inside of a fragment alone."""
    base, tables = read("base.css"), read("tables.css")
    light = base[base.index("{") + 1 : base.index("}")]
    dark = re.search(r"dark\) \{\s*:root \{(.*?)\}", base, re.DOTALL)
    assert dark is not None
    rules = re.sub(r"/\*.*?\*/", "", tables, flags=re.DOTALL)
    inside = re.sub(
        r"([^{}]+)\{",
        lambda m: ", ".join(f".mha {s.strip()}" for s in split(m[1])) + " {",
        rules,
    )
    return (
        f"<style>.mha {{{light}}}\n"
        f"@media (prefers-color-scheme: dark) {{ .mha {{{dark[1]}}} }}\n"
        f"{inside}\n{OWN}</style>"
    )


def split(selectors: str) -> list[str]:
    """A list of selectors at its commas, those inside parentheses left alone."""
    return re.split(r",(?![^(]*\))", selectors.strip())


def fragment(title: str, parts: Sequence[str]) -> str:
    """A fragment with its style."""
    inside = "\n".join(parts)
    return (
        f'<div class="mha">{style()}<p class="title">{escape(title)}</p>{inside}</div>'
    )


def step_html(block: Block) -> str:
    """Everything that a step has to show."""
    parts = [f"<p>{escape(part)}</p>" for part in block.says.split("\n\n") if part]
    parts.append(f"<p><b>Look at:</b> {escape(block.look)}</p>" * bool(block.look))
    parts += made_html(block, block)
    for turn in block.wrong_turns:
        parts.append('<div class="wrong"><p class="bad">Wrong turn</p>')
        parts.append(f"<p>{escape(turn.says)}</p>")
        parts += made_html(turn, block)
        parts.append(f"<p class='bad'>{escape(turn.error)}</p>" * bool(turn.error))
        parts.append(f"<p>{escape(turn.why)}</p>" * bool(turn.why))
        parts += [note_html(note) for note in block.said_of(turn.name)]
        parts.append("</div>")
    placed = {entry.name for entry in block.entries if entry.name}
    placed |= {turn.name for turn in block.wrong_turns}
    parts += [note_html(n.says) for n in block.notes if n.about not in placed]
    if block.checks:
        told = "".join(
            f"<li>{'holds' if check.holds else 'FAILS'}: {escape(check.claim)}</li>"
            for check in block.checks
        )
        parts.append(f"<p><b>Checks</b></p><ul>{told}</ul>")
    return fragment(f"Step {block.title.number}: {block.title.title}", parts)


def made_html(part: Block | WrongTurn, block: Block) -> list[str]:
    """Every statement, and under each the tensors that it made."""
    heads, told = by_head(block.entries), []
    for code, made in statements(part):
        told.append(statement_html(code))
        for entry in made:
            shape = f"({', '.join(map(str, entry.shape))})"
            told.append(
                f'<p class="soft"><b>{escape(shape)}</b> '
                f"{escape(', '.join(entry.axes))} · {escape(entry.origin)}</p>"
            )
            letters = walk_axes(entry, heads)
            if entry.name and block.numbers and len(letters) == len(entry.shape):
                told.append(tensor_html(entry.numbers(), letters, block))
            if entry.name and part is block:
                told += [note_html(note) for note in block.said_of(entry.name)]
    return told


def statement_html(code: Code) -> str:
    here = f' <span class="soft">here: {escape(code.filled)}</span>' * bool(code.filled)
    return f'<p class="statement"><code>{escape(code.shown)}</code>{here}</p>'


def note_html(note: str | Table | Drawing) -> str:
    if isinstance(note, Drawing):
        return f'<pre class="drawing">{escape(chr(10).join(note.lines))}</pre>'
    if isinstance(note, Table):
        return plain_table(note.header, note.rows)
    return f"<p>{escape(note)}</p>"


def plain_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of words."""
    top = "".join(f"<th>{escape(text)}</th>" for text in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>"
        for row in rows
    )
    return f"<table><tr>{top}</tr>{body}</table>"


def tensor_html(numbers: Any, letters: Sequence[str], block: Block) -> str:
    """A tensor as tables: the last axis across, a table for each index before two."""
    window = [
        some(range(size), *KEPT.get(letter, KEPT_ELSE))
        for letter, size in zip(letters, numbers.shape, strict=True)
    ]
    over, down, across = window[:-2], window[-2:-1] or [[None]], window[-1:] or [[None]]
    sheets = []
    for sheet in product(*over):
        names = [
            index_name(letter, i, block)
            for letter, i, size in zip(letters, sheet, numbers.shape, strict=False)
            if size > 1 or letter == "H"
        ]
        rows = []
        for row in down[0]:
            label = "" if row is None else index_name(letters[-2], row, block)
            cells = []
            for column in across[0]:
                at = tuple(i for i in (*sheet, row, column) if i is not None)
                cells.append(cell_html(numbers[at].item(), at, letters, block))
            rows.append(f"<tr><th>{escape(label)}</th>{''.join(cells)}</tr>")
        caption = f"<caption>{escape(', '.join(names))}</caption>" if names else ""
        sheets.append(f'<table class="grid">{caption}{"".join(rows)}</table>')
    return f'<div class="sheets">{"".join(sheets)}</div>'


def index_name(letter: str, index: int, block: Block) -> str:
    """What an index is called: its token, its head."""
    if letter == "T" and index < len(block.tokens):
        return block.tokens[index]
    return {"H": f"head {index + 1}", "B": f"sentence {index + 1}"}.get(
        letter, f"{letter.replace('?', '')} {index}"
    )


def cell_html(
    value: Any, at: Sequence[int], letters: Sequence[str], block: Block
) -> str:
    """A number, in the colour of its head where the axes still tell it."""
    head, D = None, block.head_dim
    for letter, index in zip(letters, at, strict=True):
        if letter == "H" and "T?" not in letters:
            head = index
        elif letter == "H*D" and D:
            head = index // D
    kind = f' class="hd hd{head % COLOURS}"' if head is not None else ""
    return f"<td{kind}>{escape(number(value))}</td>"


class Shown:
    """One step of the walk, for a notebook's cell."""

    def __init__(self, settings: Mapping[str, Any], step: int) -> None:
        from steps.walk.order import Walk

        (self.block,) = Walk(settings).blocks([step])

    def _repr_html_(self) -> str:
        return step_html(self.block)

    def __repr__(self) -> str:
        from steps.walk.text import Text

        return Text().block(self.block).rstrip("\n")
