# ruff: noqa: E501 - sentences for the reader are kept whole
"""What the debugger found: one object, which prints as the report for a person.

Each row of `Diagnosis.trace` is one operation, in the order of the run, as a dict:

    line, column, end_line, end_column   its place in the file; columns from 1, or None
    statement    the whole statement             expression   this operation's part of it
    name         what the source calls it, or ""
    function     torch's name of the operation, such as "view"
    shape        list of int
    stage        the stage of attention that it holds ("queries", "scores", "weights",
                 ...), "" for a part of a computation, None where it holds none
    axes         the stage's axes in the order found, such as ["B", "H", "T", "D"]; the
                 keys' token axis is "S", merged axes are written "H*D"
    origin       "computed", "rearranged" or "copied", as in the walk
    ok           True good, False wrong or made from what is wrong, None undecided
    first_wrong  True on the one row that is the fault
    follows      True on rows made from it
    values       the tensor, in memory only: not in the JSON
"""

import json
import textwrap
from dataclasses import dataclass, field
from typing import Any

WIDTH = 100
EXIT = {"no fault": 0, "fault": 1, "cannot tell": 2}


@dataclass
class Diagnosis:
    """The verdict on one module."""

    file: str
    verdict: str  # "fault", "no fault" or "cannot tell"
    line: int | None = None
    column: int | None = None
    statement: str = ""
    kind: str = ""  # the family of the fault, such as "mask" or "split"
    expected: str = ""
    got: str = ""
    message: str = ""
    trace: list[dict[str, Any]] = field(default_factory=list)
    examined: str = ""  # the class, and how it was built
    notes: list[str] = field(default_factory=list)  # what was proved, or remarked
    seen_at: int | None = None  # where a fault of the constructor shows in forward

    def json(self) -> str:
        """One line of strict JSON."""
        keys = [
            "file",
            "verdict",
            "line",
            "column",
            "statement",
            "kind",
            "expected",
            "got",
            "message",
            "trace",
        ]
        whole = {key: getattr(self, key) for key in keys}
        whole["trace"] = [
            {key: value for key, value in row.items() if key != "values"}
            for row in self.trace
        ]
        whole |= {
            "examined": self.examined,
            "notes": self.notes,
            "seen_at": self.seen_at,
        }
        return json.dumps(whole, allow_nan=False)

    def __str__(self) -> str:
        return "\n".join(ascii_only(line) for line in self._lines())

    def _lines(self) -> list[str]:
        where = f":{self.line}" if self.line else ""
        lines = wrap(
            f"{self.file}{where}: {self.verdict}"
            + (f" ({self.kind})" if self.kind else "")
        )
        if self.examined:
            lines += wrap(f"Examined: {self.examined}")
        if self.trace:
            lines += ["", *self._table()]
        lines.append("")
        if self.statement and self.verdict == "fault":
            lines += wrap(f"Line {self.line}: {self.statement}", "", "    ")
        lines += wrap(self.message)
        if self.verdict == "fault":
            if self.got:
                lines += wrap(f"It made: {self.got}", "  ", "    ")
            if self.expected:
                lines += wrap(f"Right:   {self.expected}", "  ", "    ")
        for note in self.notes:
            lines += wrap(note, "  - ", "    ")
        return lines

    def _table(self) -> list[str]:
        """One line an operation: where, what, its shape and the stage it holds."""
        rows = [("line", "name or expression", "shape", "holds", "axes")]
        for row in self.trace:
            stage = row["stage"]
            if row["first_wrong"]:
                stage = "<-- first wrong"
            elif row["follows"]:
                stage = "(made from what is wrong)"
            elif row["ok"] is False:
                stage = "(no stage)"
            elif stage is None:
                stage = (
                    "no stage of attention"
                    if row["ok"] is None and self.verdict == "fault"
                    else ""
                )
            shape = "(" + ", ".join(map(str, row["shape"])) + ")"
            axes = "(" + ", ".join(row["axes"]) + ")" if row["axes"] else ""
            label = row["name"] or row["expression"]
            rows.append((str(row["line"] or ""), label, shape, stage, axes))
        wide = [max(len(cells[c]) for cells in rows) for c in range(5)]
        wide[1] = max(
            12, min(wide[1], WIDTH - 8 - wide[0] - wide[2] - wide[3] - wide[4])
        )
        lines = []
        for line, label, shape, stage, axes in rows:
            cells = [line.rjust(wide[0]), clip(label, wide[1]).ljust(wide[1])]
            cells += [shape.ljust(wide[2]), stage.ljust(wide[3]), axes]
            lines.append("  ".join(cells).rstrip())
        return lines


def clip(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 2] + ".."


def wrap(text: str, first: str = "", rest: str | None = None) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=first if rest is None else rest,
        break_on_hyphens=False,
    )


def ascii_only(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()
