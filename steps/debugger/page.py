"""What the debugger found as a page, and as a piece of HTML for a notebook.

The page is the walk's own, with a file in the place of each step and the operations of
its trace as the tensors. The trace has no calls in it, so where a number came from is
measured on the numbers: a result whose numbers are all found in an earlier one, each at
one place, was moved from there, and a formula is believed when it gives every number.
"""

import linecache
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from steps.debugger.result import AXES, Diagnosis, ascii_only
from steps.pytorch import torch
from steps.walk.formula import ONLY, SUMMED, spread_over, work_out
from steps.walk.gather import FOLLOWED, KEPT, KEPT_ELSE, pack, some
from steps.walk.page import check_target, render, save
from steps.walk.provenance import formula as places_of
from steps.walk.recorder import MOVED
from steps.walk.text import ORIGINS

REPAIR = ("line", "wrong", "right: proved by running it")
BACK = 12  # earlier operations that are tried as sources


def write_report(results: Sequence[Diagnosis], path: str, force: bool = False) -> None:
    """Write the findings as a page: each file a section, the fault in view.

    Raises UserError as `write_page` does.
    """
    check_target(path, force)
    save(Path(path), render(report(results), names_of(results)))


def names_of(results: Sequence[Diagnosis]) -> str:
    return ", ".join(Path(result.file).name for result in results)


def report(results: Sequence[Diagnosis]) -> dict[str, Any]:
    """The page's data, see walk/page.py."""
    steps: list[dict[str, Any]] = []
    tensors: list[dict[str, Any]] = []
    sizes: dict[str, int] = {}
    for number, result in enumerate(results, 1):
        told, made = section(number, result, len(tensors))
        steps.append(told)
        tensors += made
    for one in tensors:
        sizes |= dict(zip(one["axes"], one["shape"], strict=True))
    terms = map(list, ORIGINS.items())
    axes = map(list, AXES.items())
    said = "Holds: the stage of attention whose numbers a tensor has. Axes:"
    return {
        "report": 1,
        "torch": torch.__version__,
        "seed": 0,
        "text": names_of(results),
        "sizes": sizes,
        "tokens": [],
        "follow": -1,
        "legend": [*terms, said, *axes],
        "steps": steps,
        "tensors": tensors,
        "texts": [],
        "turn": None,
        "picture": None,
    }


def section(
    number: int, result: Diagnosis, first: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """One file as a step of the page, and its operations as tensors.

    first: the place of the first of them.
    """
    rows, groups = result.trace, []
    made = [tensor(row, number, result.mark(row)) for row in rows]
    for at in range(len(rows)):
        made[at] |= origin(rows, at, first)
    places = iter(range(first, first + len(rows)))
    for (line, statement), group in groupby(
        rows, key=lambda row: (row["line"], row["statement"])
    ):
        groups.append(
            {
                "code": statement,
                "here": f"line {line}" if line else "",
                "depth": 0,
                "made": [next(places) for _ in group],
            }
        )
    widths = [
        size
        for row in made
        for axis, size in zip(row["letters"], row["shape"], strict=True)
        if axis == "D"
    ]
    kind = f", {result.kind}" if result.kind else ""
    told = {
        "number": number,
        "title": f"{Path(result.file).name}: {result.verdict}{kind}",
        "article": [],
        "look": "",
        "says": said(result),
        "repair": repair(result),
        "shown": shown(result),
        "head_dim": widths[0] if widths else 0,
        "tokens": [],
        "groups": groups,
        "wrong_turns": [],
        "notes": list(result.notes),
        "notes_about": ["" for _ in result.notes],
        "checks": [],
        "trace": [[row["line"] or "", row["shape"], result.holds(row)] for row in rows],
    }
    return told, made


def said(result: Diagnosis) -> list[str]:
    """What happened, and where."""
    fault = result.verdict == "fault"
    where = f"Line {result.line}: " if result.line else ""
    lines = [f"{where}`{result.statement}`"] if fault and result.statement else []
    lines += [result.message] if result.message else []
    return lines + ([f"It made: {result.got}"] if fault and result.got else [])


def shown(result: Diagnosis) -> list[str]:
    """What is told after the change: what was run, and on what."""
    examined = [f"Examined: {result.examined}"] if result.examined else []
    return [*([result.others()] if result.also else []), *result.shown(), *examined]


def repair(result: Diagnosis) -> list[dict[str, Any]]:
    """A proved change, line by line: {"line", "old", "new"}; [] where there is none."""
    linecache.checkcache(result.file)  # a notebook's cells are in it as well
    return [
        {
            "line": change["line"],
            "old": linecache.getline(result.file, change["line"]).strip(),
            "new": change["new"].strip() or "(nothing)",
        }
        for change in result.repair or ()
    ]


def tensor(row: Mapping[str, Any], number: int, mark: str) -> dict[str, Any]:
    """One row of a trace as a tensor of the page; mark: as `Diagnosis.mark` has it."""
    shape, stage = list(row["shape"]), row["stage"] or ""
    axes = list(row["axes"] or ())
    if len(axes) != len(shape):
        axes = [str(size) for size in shape]
    letters = ["T" if axis == "S" else axis for axis in axes]
    made: dict[str, Any] = {
        "name": row["name"] or row["expression"],
        "link": not row["name"],
        "statement": row["statement"],
        "function": row["function"].strip("_"),
        "shape": shape,
        "axes": axes,
        "letters": letters,
        "stride": [],
        "offset": 0,
        "contiguous": True,
        "origin": row["origin"],
        "shares_storage_with": None,
        "holds": stage if stage in ("weights", "scores", "mask") else "",
        "step": number,
        "stage": stage,
    }
    if mark:
        made["mark"] = mark
    values = row.get("values")
    if values is not None and list(values.shape) == shape:
        window = [
            some(range(size), *KEPT.get(axis, KEPT_ELSE))
            for axis, size in zip(letters, shape, strict=True)
        ]
        pack(made, values.detach(), window)
        if any(len(w) < size for w, size in zip(window, shape, strict=True)):
            made["window"] = window
    return made


def origin(rows: Sequence[Mapping[str, Any]], at: int, first: int) -> dict[str, Any]:
    """Where the numbers of a row came from, as "links" and "formula"; {} if unknown."""
    made = rows[at].get("values")
    if made is None or not 0 < made.numel() <= FOLLOWED or not made.is_floating_point():
        return {}
    earlier = [
        (first + k, rows[k]["values"].detach())
        for k in range(max(0, at - BACK), at)
        if rows[k].get("values") is not None and rows[k]["values"].is_floating_point()
    ][::-1]
    if rows[at]["origin"] in MOVED:
        for place, source in earlier:
            if source.shape == made.shape and torch.equal(source, made):
                found: torch.Tensor | None = torch.arange(made.numel()).view(made.shape)
            else:
                found = moved(made.detach(), source)
            if found is not None:
                return {"links": [{"i": place, "same": 1, **places_of(found)}]}
        return {}
    return worked_out(rows[at]["function"].strip("_"), made.detach(), earlier)


def moved(made: torch.Tensor, source: torch.Tensor) -> torch.Tensor | None:
    """The place in `source` of every number of `made`; None where one has none, or two
    have the same number and cannot be told apart."""
    if made.numel() > source.numel() or made.dtype != source.dtype:
        return None
    flat, order = source.flatten().sort()
    if source.numel() > 1 and bool((flat[1:] == flat[:-1]).any()):
        return None
    at = torch.searchsorted(flat, made.flatten().contiguous())
    at = at.clamp(max=flat.numel() - 1)
    if not torch.equal(flat[at], made.flatten()):
        return None
    return order[at].view(made.shape)


def worked_out(
    name: str, made: torch.Tensor, earlier: Sequence[tuple[int, torch.Tensor]]
) -> dict[str, Any]:
    """A formula of earlier results that gives every number of this one; its links."""
    for formula, places, sources in candidates(name, made, earlier):
        try:
            close = torch.allclose(
                work_out(formula, sources, made), made.double(), rtol=1e-4, atol=1e-5
            )
        except (RuntimeError, IndexError):
            continue
        if close:
            maps = formula.get("map") or [list(range(made.dim()))]
            if formula["op"] == "softmax":
                maps = [[SUMMED if k == formula["axis"] else k for k in maps[0]]]
            links = [
                {"i": place, "d": axes}
                for place, axes in zip(places, maps, strict=True)
            ]
            return {"formula": {**formula, "of": places}, "links": links}
    return {}


Candidate = tuple[dict[str, Any], list[int], list[torch.Tensor]]


def candidates(
    name: str, made: torch.Tensor, earlier: Sequence[tuple[int, torch.Tensor]]
) -> Iterator[Candidate]:
    """Formulas that the name of a call allows, with places and sources."""
    if name in ("matmul", "bmm", "mm"):
        yield from products(made, earlier)
    for place, source in earlier:
        if source.shape != made.shape:
            continue
        if name == "softmax":
            for axis in range(made.dim()):
                yield {"op": "softmax", "axis": axis}, [place], [source]
        elif name in ("div", "truediv", "mul"):
            ratio = (source.double() / made.double()).flatten()
            ratio = ratio[ratio.isfinite()]
            if ratio.numel():  # a root, as of a width, is found as one
                by = round(float(ratio.median()) ** 2, 3) ** 0.5
                maps = [spread_over(source, made)]
                yield {"op": "div", "map": maps, "by": by}, [place], [source]


def products(
    made: torch.Tensor, earlier: Sequence[tuple[int, torch.Tensor]]
) -> Iterator[Candidate]:
    """Products of two earlier results."""
    rank = made.dim()
    for one, left in earlier:
        for two, right in earlier:
            if not left.dim() == right.dim() == rank >= 2:
                continue
            if left.shape[-1] == right.shape[-2]:
                maps = [
                    [*before(left), rank - 2, SUMMED],
                    [*before(right), SUMMED, rank - 1],
                ]
                yield {"op": "dot", "map": maps}, [one, two], [left, right]


def before(tensor: torch.Tensor) -> list[int]:
    """The axes before a matrix, where both factors have as many."""
    return [ONLY if size == 1 else k for k, size in enumerate(tensor.shape[:-2])]


def fragment(result: Diagnosis) -> str:
    """A finding for a notebook's cell: what is said, and the trace as a table."""
    from steps.walk.fragment import escape
    from steps.walk.fragment import fragment as around

    kind = f" ({result.kind})" if result.kind else ""
    where = f":{result.line}" if result.line else ""
    rows = []
    for row in result.trace:
        mark = f" class='{result.mark(row)}'" if result.mark(row) else ""
        shape = "(" + ", ".join(map(str, row["shape"])) + ")"
        cells = [row["line"] or "", ascii_only(row["name"] or row["expression"]), shape]
        cells += [result.holds(row), "(" + ", ".join(row["axes"] or ()) + ")"]
        inside = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        rows.append(f"<tr{mark}>{inside}</tr>")
    names = ("line", "name or expression", "shape", "holds", "axes")
    top = "".join(f"<th>{name}</th>" for name in names)
    parts = [f"<p>{escape(part).replace('`', '')}</p>" for part in said(result)]
    changes = "".join(
        f"<tr><th>{change['line']}</th><td><code>{escape(change['old'])}</code></td>"
        f"<td><code>{escape(change['new'])}</code></td></tr>"
        for change in repair(result)
    )
    if changes:
        head = "".join(f"<th>{name}</th>" for name in REPAIR)
        parts.append(f"<table class='repair'><tr>{head}</tr>{changes}</table>")
    parts += [f"<p>{escape(part)}</p>" for part in shown(result)]
    if rows:
        parts.append(f"<table class='trace'><tr>{top}</tr>{''.join(rows)}</table>")
    parts += [f"<p class='soft'>{escape(note)}</p>" for note in result.notes]
    return around(f"{Path(result.file).name}{where}: {result.verdict}{kind}", parts)
