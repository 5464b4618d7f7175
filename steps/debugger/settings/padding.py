"""A mask for padding: what it hides of a sequence must change nothing else."""

import inspect
import itertools
import re
from collections.abc import Iterator
from typing import Any

from steps.debugger.arguments import plain
from steps.debugger.case import Case, plainly
from steps.debugger.explain import thrown_away
from steps.debugger.result import Diagnosis
from steps.debugger.run import Node, Run
from steps.pytorch import torch

HIDDEN = 2  # tokens at the end of the last sequence
NEAR = 1e-6  # of the largest output
ASKS = re.compile(r"mask|pad|lens?$|lengths?$")
OTHERS = re.compile(r"head|causal|query|tgt|nonpad|out|cross|context|memory|encoder")


def padding(case: Case) -> Diagnosis | str | None:
    """A padding mask that forward takes and that does not hide the padded keys.

    The forms in use are tried (a row of truth values for each sequence, of numbers to
    add, or its length). One of them has to give a padded sequence the output that it
    has without its padding.
    """
    name = asked(case)
    if name is None or case.causal or case.B < 2:
        return None
    bare, _ = plainly(case, case.x)
    short, _ = plainly(case, case.x[-1:, :-HIDDEN])
    if bare is None or short is None:
        return None
    fits: list[tuple[Case, torch.Tensor]] = []
    for words, mask in forms(case.B, case.T, case.x.dtype):
        masked = with_mask(case, name, mask)
        out, _ = plainly(masked, case.x)
        if out is None or out.shape != bare.shape:
            continue
        if near(out[:-1], bare[:-1]) and near(out[-1:, :-HIDDEN], short):
            case.given.add(name)
            return f"{name!r} as a padding mask, {words}"
        fits.append((masked, out))
    changing = [masked for masked, out in fits if not near(out, bare)]
    for masked in (changing or [masked for masked, _ in fits])[:1]:
        run = masked.record()
        added = added_by(run, case.run)
        on_x = [node for node in added if node.uses_x]
        if not changing:
            return dropped(case, run, on_x)
        if on_x:
            return case.file.fault(
                added[0],
                "mask",
                f"{name!r} was tried as a padding mask, in every usual form: none "
                "gives a padded sequence the output that it has without its padding.",
                f"shape {tuple(added[0].value.shape)}",
                "a mask over the keys, (b, 1, 1, num_tokens): the same for every query",
                seen_at=on_x[0].line,
                node=on_x[0],
            )
    return None


def dropped(case: Case, run: Run, added: list[Node]) -> Diagnosis | None:
    """The mask put on scores that nothing reads."""
    lost = next((node for node in added if not node.used), None)
    if lost is None:
        return None
    later = run.nodes[lost.index + 1 :]
    reader = next((n for n in later if set(n.inputs) & set(lost.inputs)), None)
    return thrown_away(case, lost, "the result", reader)


def asked(case: Case) -> str | None:
    """The parameter of forward that takes a padding mask, by its name."""
    try:
        names = inspect.signature(case.module.forward).parameters
    except (TypeError, ValueError):
        return None
    letters = {name: plain(name) for name in names}
    return next(
        (n for n, p in letters.items() if ASKS.search(p) and not OTHERS.search(p)), None
    )


def forms(B: int, T: int, dtype: torch.dtype) -> Iterator[tuple[str, torch.Tensor]]:
    """Masks, and what is said of them, that hide the end of the last sequence."""
    lengths = torch.full((B,), T)
    lengths[-1] -= HIDDEN
    seen = torch.arange(T) < lengths[:, None]
    minus = torch.zeros(B, T, dtype=dtype).masked_fill(~seen, -torch.inf)
    rows = {
        "True where a token may be seen": seen,
        "True where it may not": ~seen,
        "-inf where it may not, to be added": minus,
        "1 where a token may be seen": seen.to(dtype),
        "1 where it may not": (~seen).to(dtype),
        "whole numbers, 1 where a token may be seen": seen.long(),
    }
    for shape, words in itertools.product(((B, T), (B, 1, 1, T)), rows):
        yield words, rows[words].view(shape)
    yield "the lengths of the sequences", lengths


def with_mask(case: Case, name: str, mask: torch.Tensor) -> Case:
    """The case, with a mask given to one parameter of forward."""

    def how(module: Any, x: torch.Tensor) -> tuple[tuple, dict]:
        args, kwargs = case.how(module, x)
        given = inspect.signature(module.forward).bind(*args, **kwargs)
        given.arguments[name] = mask.clone()
        return given.args, given.kwargs

    return case.again(f"{case.said}, {name}", how)


def near(one: torch.Tensor, two: torch.Tensor) -> bool:
    return bool(((one - two).abs() <= NEAR * two.abs().max()).all())


def added_by(run: Run, bare: Run) -> list[Node]:
    """The operations that are not in the run without a mask."""
    before = {(node.line, node.entry.expression) for node in bare.nodes}
    return [n for n in run.nodes if (n.line, n.entry.expression) not in before]
