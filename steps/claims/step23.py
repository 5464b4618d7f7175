"""What is said of step 23: what a listing of shapes shows, and what the debugger."""

import inspect
from functools import cache

from steps.attention import MultiHeadAttention
from steps.compare import close, differ, equal
from steps.debugger import diagnose
from steps.debugger.planted import PlantedAttention
from steps.layout import Table
from steps.pytorch import torch
from steps.words import count

SHOWN = ("right_contexts", "planted_contexts")
BRIEF = SHOWN


@cache
def found():
    return diagnose(PlantedAttention)


def look(right_contexts, planted_contexts):
    near = torch.isclose(planted_contexts, right_contexts, rtol=1e-5, atol=1e-6)
    wrong, rows = int((~near.all(dim=-1)).sum()), near[..., 0].numel()
    return (
        f"two outputs of one shape, {tuple(planted_contexts.shape)}. "
        f"{wrong or 'None'} of the planted class's {count(rows, 'row')} "
        f"{'holds' if wrong == 1 else 'hold'} wrong numbers; the first wrong line of "
        f"steps/debugger/planted.py is line {found().line}."
    )


def notes(right_contexts, head_queries, B, T, H, D):
    report = found()
    sizes = report.examined.removeprefix("PlantedAttention")
    yield (
        "planted_contexts",
        f"The debugger made the class at sizes of its own, all different, {sizes}. "
        "Every shape is right; the last column is what the numbers say, compared "
        "with every stage of attention, worked out plainly from the class's own "
        "queries, keys and values.",
    )
    rows = []
    for row in report.trace:
        if not row["name"]:
            continue
        shape = "(" + ", ".join(map(str, row["shape"])) + ")"
        rows.append((str(row["line"]), row["name"], shape, report.holds(row)))
    yield "planted_contexts", Table(("line", "name", "shape", "holds"), tuple(rows))
    yield "planted_contexts", f"Line {report.line}: {report.statement}"
    yield "planted_contexts", report.message
    yield "planted_contexts", f"The right form: {report.expected}."
    if H == 1 or T == 1:
        one = "one head" if H == 1 else "one token"
        yield (
            "planted_contexts",
            f"With {one}, as here, that view is the right split by chance: the fault "
            "makes no number wrong at these sizes, and is found at the debugger's own.",
        )
    turned, expected = (B, T, D, H), tuple(head_queries.shape)
    if turned == expected:
        yield "wrong_axes", f"At these sizes every shape is right: q is {turned}."
    else:
        yield (
            "wrong_axes",
            "A listing of shapes shows it at the first line: q is "
            f"{turned}, and is to be {expected}.",
        )


def checks(x_batch, right, planted, right_contexts, planted_contexts, B, T, H, D):
    yield (
        "the planted class returns the right shape",
        equal(tuple(planted_contexts.shape), tuple(right_contexts.shape)),
    )
    if T > 1:
        changed = x_batch.clone()
        changed[:, -1] += 1
        yield (
            "changing the last input leaves the planted class's earlier outputs as "
            "they were",
            equal(planted(changed)[:, :-1], planted_contexts[:, :-1]),
        )
    if H == 1 or T == 1:
        yield (
            "at these sizes the planted class's numbers are right as well",
            close(planted_contexts, right_contexts),
        )
    else:
        yield (
            "the planted class's numbers are wrong",
            differ(planted_contexts, right_contexts),
        )
    by_token = right.W_query(x_batch).view(B, T, H, D)
    yield (
        "transpose(2, 3) makes (B, T, D, H) without an error",
        equal(tuple(by_token.transpose(2, 3).shape), (B, T, D, H)),
    )
    lines, start = inspect.getsourcelines(PlantedAttention)
    at = next(i for i, text in enumerate(lines) if "head_queries = " in text)
    yield (
        "the debugger names the planted class's first wrong line",
        equal(found().line, start + at),
    )
    yield (
        "the debugger finds no fault in the class of step 21",
        equal(diagnose(MultiHeadAttention).verdict, "no fault"),
    )
