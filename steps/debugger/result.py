"""What the debugger found: one object, which prints as the report for a person.

Each row of `Diagnosis.trace` is one operation, in the order of the run, as a dict:

    line, column, end_line, end_column   its place in the file; columns from 1, or None
    statement    the whole statement            expression   this operation's part of it
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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from steps.layout import WIDTH, clip, wrap

if TYPE_CHECKING:
    from steps.debugger.run import Node

AXES = {
    "B": "sequences",
    "H": "heads",
    "T": "tokens of the queries",
    "S": "tokens of the keys and values",
    "D": "features of a head",
    "E": "features of the output",
}
EXIT = {"no fault": 0, "fault": 1, "cannot tell": 2}


@dataclass(repr=False)  # in a notebook the report is shown, not the numbers
class Diagnosis:
    """The verdict on one module."""

    file: str
    verdict: str  # "fault", "no fault" or "cannot tell"
    line: int | None = None
    column: int | None = None
    statement: str = ""
    kind: str = ""  # the family of the fault, such as "mask" or "split"
    expected: str = ""  # the first changed line of the repair
    got: str = ""
    message: str = ""
    trace: list[dict[str, Any]] = field(default_factory=list)
    examined: str = ""  # the class, and how it was built
    proof: str = ""  # what was run that shows the fault, or that there is none
    repair: list[dict[str, Any]] | None = (
        None  # "line", "new": the line as it must read
    )
    also: list[list[dict[str, Any]]] = field(default_factory=list)  # other such repairs
    risks: list[dict[str, Any]] = field(
        default_factory=list
    )  # line kind setting message
    tried: list[str] = field(default_factory=list)  # settings in which it was run
    not_tried: list[str] = field(
        default_factory=list
    )  # arguments and sizes that were not
    notes: list[str] = field(default_factory=list)  # what was remarked
    seen_at: int | None = None  # where a fault of the constructor shows in forward
    node: "Node | None" = None  # the operation at fault, in memory only

    def mend(self, repairs: list[list[dict[str, Any]]], proof: str) -> None:
        """Take the first of these as the repair, the others as further ones."""
        self.repair, *self.also = repairs
        self.expected, self.proof = self.repair[0]["new"].strip(), proof

    def json(self) -> str:
        """One line of strict JSON."""
        whole = {name: value for name, value in vars(self).items() if name != "node"}
        whole["trace"] = [
            {name: value for name, value in row.items() if name != "values"}
            for row in self.trace
        ]
        return json.dumps(whole, allow_nan=False)

    def __str__(self) -> str:
        return "\n".join(ascii_only(line) for line in self._lines())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """What a notebook shows: the report with its table in colour."""
        from steps.debugger.page import fragment

        return fragment(self)

    def _lines(self) -> list[str]:
        """What happened, the line, its change, the proof; then what each line holds."""
        file = ascii_only(self.file)  # before a line break in it is taken for one
        if self.message and not (self.examined or self.trace or self.notes):
            return wrap(f"{file}: {self.verdict}: {self.message}")
        where = f":{self.line}" if self.line else ""
        kind = f" ({self.kind})" if self.kind else ""
        mended = ", and the change that mends it" if self.repair else ""
        lines = wrap(f"{file}{where}: {self.verdict}{kind}{mended}")
        if self.message:
            lines += ["", *wrap(self.message)]
        if self.got and self.verdict == "fault":
            lines += wrap(f"It made: {self.got}", "  ", "    ")
        lines += self._change()
        shown = self.shown()
        lines += [""] * bool(shown) + [line for said in shown for line in wrap(said)]
        if self.trace:
            lines += ["", *self._table(), *self._axes()]
        lines.append("")
        if self.examined:
            lines += wrap(f"Examined: {self.examined}")
        for note in self.notes:
            lines += wrap(note, "  - ", "    ")
        return lines[: -1 if not lines[-1] else None]

    def shown(self) -> list[str]:
        """What was run, a sentence each: the proof, the risks, what was tried."""
        said = [f"Proof: {self.proof}"] if self.proof else []
        for risk in self.risks:
            at = f"line {risk['line']}: " if risk["line"] else ""
            said.append(f"Risk: {at}{risk['message']}")
        for name, settings in (("Tried", self.tried), ("Not tried", self.not_tried)):
            said += [f"{name}: {', '.join(settings)}."] if settings else []
        return said

    def others(self) -> str:
        """Where else a change mends it; "" for nowhere."""
        own = {change["line"] for change in self.repair or ()}
        lines = sorted({repair[0]["line"] for repair in self.also} - own)
        s, said = "s" * (len(lines) > 1), ", ".join(map(str, lines))
        return f"A change at line{s} {said} mends it as well." if lines else ""

    def _change(self) -> list[str]:
        """The line at fault as it stands and, where a change was proved, as it must."""
        if self.verdict != "fault" or not self.statement:
            return []
        lines = ["", f"  {self.line or '':>4}    {clip(self.statement, WIDTH - 12)}"]
        for at, change in enumerate(self.repair or ()):
            name = "change" if at == 0 else "and"
            same = change["line"] == self.line
            where = "" if same else f"line {change['line']}: "
            lines += wrap(
                where + (change["new"].strip() or "(nothing)"), f"  {name:<8}", " " * 12
            )
        if self.also:
            lines += wrap(self.others(), " " * 10, " " * 10)
        return lines

    def _table(self) -> list[str]:
        """One line an operation: where, what, its shape and the stage it holds."""
        rows = [("line", "name or expression", "shape", "holds", "axes")]
        for row in self.trace:
            shape = "(" + ", ".join(map(str, row["shape"])) + ")"
            axes = "(" + ", ".join(row["axes"]) + ")" if row["axes"] else ""
            label = ascii_only(row["name"] or row["expression"])
            rows.append((str(row["line"] or ""), label, shape, self.holds(row), axes))
        wide = [max(len(cells[c]) for cells in rows) for c in range(5)]
        wide[1] = max(12, min(wide[1], WIDTH - 8 - sum(wide) + wide[1]))
        lines = []
        for line, label, shape, stage, axes in rows:
            cells = [line.rjust(wide[0]), clip(label, wide[1]).ljust(wide[1])]
            cells += [shape.ljust(wide[2]), stage.ljust(wide[3]), axes]
            lines.append("  ".join(cells).rstrip())
        return lines

    def _axes(self) -> list[str]:
        """What the letters of the table stand for, those that it has."""
        used = {
            part for row in self.trace for a in row["axes"] for part in a.split("*")
        }
        named = [
            f"{letter} {words}" for letter, words in AXES.items() if letter in used
        ]
        return ["", *wrap(f"Axes: {', '.join(named)}.")] if named else []

    def mark(self, row: dict[str, Any]) -> str:
        """ "first" on the row that is wrong, "after" on those made from it, else ""."""
        if self.verdict != "fault":
            return ""
        return "first" if row["first_wrong"] else "after" if row["follows"] else ""

    def holds(self, row: dict[str, Any]) -> str:
        """What an operation holds, in a word or two."""
        if mark := self.mark(row):
            return {"first": "<-- first wrong", "after": "(made from what is wrong)"}[
                mark
            ]
        if row["ok"] is False:
            return "(matches no stage)"
        if row["stage"] is None and row["ok"] is None and self.verdict == "fault":
            return "no stage of attention"
        return row["stage"] or ""


def ascii_only(text: str) -> str:
    """What a plain console shows as it stands; other characters as escapes."""
    return "".join(c if " " <= c <= "~" else ascii(c)[1:-1] for c in text)
