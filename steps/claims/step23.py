"""What is said of step 23: what a listing of shapes shows, and what the debugger."""

import inspect
from functools import cache

from steps.attention import MultiHeadAttention
from steps.compare import close, differ, equal
from steps.debugger import diagnose
from steps.debugger.planted import PlantedAttention
from steps.walk.order import Table


@cache
def found():
    return diagnose(PlantedAttention)


def notes(H, T):
    report = found()
    sizes = report.examined.removeprefix("PlantedAttention")
    yield (
        f"The debugger made the class at sizes of its own, all different, {sizes}. "
        "Every shape below is right. The last column is what the numbers say, compared "
        "with every stage of attention, worked out plainly from the class's own "
        "queries, keys and values."
    )
    rows = []
    for row in report.trace:
        if not row["name"]:
            continue
        shape = "(" + ", ".join(map(str, row["shape"])) + ")"
        rows.append((str(row["line"]), row["name"], shape, report.holds(row)))
    yield Table(("line", "name", "shape", "holds"), tuple(rows))
    yield f"Line {report.line}: {report.statement}"
    yield report.message
    yield f"The right form: {report.expected}."
    if H == 1 or T == 1:
        one = "one head" if H == 1 else "one token"
        yield (
            f"With {one}, as here, that view is the right split by chance: the fault "
            "makes no number wrong at these sizes, and is found at the debugger's own."
        )


def checks(x_batch, classes, right_contexts, planted_contexts, H, T):
    yield (
        "the planted class returns the right shape",
        equal(tuple(planted_contexts.shape), tuple(right_contexts.shape)),
    )
    _, planted = classes
    if T > 1:
        changed = x_batch.clone()
        changed[:, -1] += 1
        yield (
            "it is causal: changing the last input leaves earlier outputs as they were",
            equal(planted(changed)[:, :-1], planted_contexts[:, :-1]),
        )
    if H == 1 or T == 1:
        yield (
            "at these sizes its numbers are right as well",
            close(planted_contexts, right_contexts),
        )
    else:
        yield "yet its numbers are wrong", differ(planted_contexts, right_contexts)
    lines, start = inspect.getsourcelines(PlantedAttention)
    at = next(i for i, text in enumerate(lines) if "head_queries = " in text)
    yield "the debugger names the first wrong line", equal(found().line, start + at)
    yield (
        "and finds no fault in the class of step 21",
        equal(diagnose(MultiHeadAttention).verdict, "no fault"),
    )
