"""What is said of step 23: a fault that no shape shows, one that a listing finds."""

import inspect

from steps.compare import close, differ, equal
from steps.debugger.planted import REPAIR, PlantedAttention
from steps.layout import Drawing
from steps.pytorch import torch
from steps.words import count

SHOWN = ("right_contexts",)
BRIEF = SHOWN


def look(right_contexts, planted_contexts):
    near = torch.isclose(planted_contexts, right_contexts, rtol=1e-5, atol=1e-6)
    wrong, rows = int((~near.all(dim=-1)).sum()), near[..., 0].numel()
    how_many = f"{wrong} of {count(rows, 'row')}" if wrong else "no row"
    return (
        f"two outputs of one shape, {tuple(planted_contexts.shape)}, in which "
        f"{how_many} {'differ' if wrong > 1 else 'differs'}. The first wrong line of "
        f"steps/debugger/planted.py is {min(REPAIR)}."
    )


def notes(right_contexts, head_queries, B, T, H, D):
    yield (
        "right_contexts",
        "Every shape is right. view counts the numbers off as they are stored, token "
        "by token. What mends it, as the debugger finds it, run here as "
        "repaired_contexts:",
    )
    yield "right_contexts", Drawing(tuple(changes()))
    if H == 1 or T == 1:
        one = "one head" if H == 1 else "one token"
        yield (
            "right_contexts",
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
            f"{turned}, and is to be {expected}. The debugger finds what "
            "mends it, transpose(1, 2), in a class with these lines.",
        )


def changes():
    """The lines of the repair, like ones together, from where they differ on."""
    lines, start = inspect.getsourcelines(PlantedAttention)
    alike = {}
    for line, new in REPAIR.items():
        old = lines[line - start].rstrip()
        same = next(i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
        same = old.rfind(".", 0, same)  # from the call on in which they differ
        alike.setdefault((old[same:], new[same:]), []).append(str(line))
    for (old, new), at in alike.items():
        yield f"line{'s' * (len(at) > 1)} {', '.join(at)}: {old}"
        yield f"  -> {new}"


def checks(
    x_batch, right, planted, right_contexts, planted_contexts, repaired_contexts,
    head_queries, B, T, H, D,
):  # fmt: skip
    yield (
        "the planted class returns the right shape",
        equal(tuple(planted_contexts.shape), tuple(right_contexts.shape)),
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
        changed = x_batch.clone()
        changed[:, -1] += 1
        yield (
            "changing the last input changes the planted class's earlier outputs: a "
            "token reads a later one, mask and all",
            differ(planted(changed)[:, :-1], planted_contexts[:, :-1]),
        )
    by_token = right.W_query(x_batch).view(B, T, H, D)
    yield (
        "transpose(2, 3) makes (B, T, D, H) without an error",
        equal(tuple(by_token.transpose(2, 3).shape), (B, T, D, H)),
    )
    yield (
        "transpose(1, 2) in its place gives the queries of step 15",
        close(by_token.transpose(1, 2), head_queries),
    )
    yield (
        "with the lines changed the planted class gives the right output",
        close(repaired_contexts, right_contexts),
    )
