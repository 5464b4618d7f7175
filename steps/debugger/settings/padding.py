"""A mask for padding: what it hides of a sentence must change nothing else."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from steps.debugger.arguments import plain
from steps.debugger.calls import always, parameters_of
from steps.debugger.case import Case, plainly
from steps.debugger.explain import thrown_away
from steps.debugger.load import first_line
from steps.debugger.result import Diagnosis
from steps.debugger.run import Node, Run
from steps.debugger.settings.context import without_mask
from steps.debugger.settings.runs import NEAR, off, output_of
from steps.pytorch import torch

HIDDEN = 2  # tokens of the last sentence
FAR = 1e-3  # of the largest number: no rounding is
ASKS = re.compile(r"mask|pad|lens?$|lengths?$")
OTHERS = re.compile(r"head|causal|query|tgt|nonpad|out|cross|context|memory|encoder")


@dataclass
class Padded:
    """A case with sentences of which the last has hidden tokens: at its end, or in
    front where no token reads a later one anyway.
    """

    case: Case
    name: str  # of the parameter for the mask
    causal: bool

    def real(self, out: torch.Tensor) -> torch.Tensor:
        """The last sentence without what is hidden."""
        return out[-1:, HIDDEN:] if self.causal else out[-1:, :-HIDDEN]

    def with_mask(self, mask: torch.Tensor) -> Case:
        return self.case.giving(**{self.name: always(mask)})

    def hides(self, mask: torch.Tensor, x: torch.Tensor) -> bool | None:
        """Whether each sentence has the output that it has by itself, unpadded; None
        where forward raises.
        """
        out, _ = plainly(self.with_mask(mask), x)
        bare, short = output_of(self.case, x), output_of(self.case, self.real(x))
        if out is None or bare is None or short is None or out.shape != bare.shape:
            return None
        return off(self.real(out), short) <= FAR and off(out[:-1], bare[:-1]) <= FAR

    def forms(self, B: int, T: int) -> Iterator[tuple[str, torch.Tensor]]:
        """Masks, and what is said of them."""
        lengths = torch.full((B,), T)
        lengths[-1] -= HIDDEN
        place = torch.arange(T)
        seen = place < lengths[:, None]
        if self.causal:
            seen = place >= (T - lengths)[:, None]
        pairs = seen[:, None, :].expand(B, T, T)
        if self.causal:
            pairs = pairs & torch.ones(T, T, dtype=torch.bool).tril()
        shapes = [seen, seen[:, None, None], pairs, pairs[:, None]]
        for shape in shapes:
            said = "x".join(map(str, shape.shape))
            for words, mask in meanings(shape, self.case.x.dtype):
                yield f"{said}, {words}", mask
        if not self.causal:
            yield "the lengths of the sentences", lengths


def meanings(
    seen: torch.Tensor, dtype: torch.dtype
) -> Iterator[tuple[str, torch.Tensor]]:
    """One mask in every usual way to write it."""
    minus = torch.zeros(seen.shape, dtype=dtype).masked_fill(~seen, -torch.inf)
    yield "True where a token may be seen", seen.contiguous()
    yield "True where it may not", ~seen
    yield "-inf where it may not, to be added", minus
    yield "1 where a token may be seen", seen.to(dtype)
    yield "1 where it may not", (~seen).to(dtype)
    yield "whole numbers, 1 where a token may be seen", seen.long()


def padding(case: Case) -> Diagnosis | str | None:
    """A padding mask that forward takes and that does not hide the padded keys.

    One of the usual forms has to give a padded sentence the output that it has without
    its padding.
    """
    name = asked(case)
    if name is None or case.B < 2 or case.asked_call is not None or case.tokens_first:
        return None
    own = case.causal and case.mask is None
    padded = Padded(without_mask(case), name, own)
    bare = output_of(padded.case, case.x)
    if bare is None or output_of(padded.case, padded.real(case.x)) is None:
        return None
    ran: list[torch.Tensor] = []
    for words, mask in padded.forms(case.B, case.T):
        hides = padded.hides(mask, case.x)
        if hides:
            case.given.add(name)
            return f"{name!r} as a padding mask, {words}"
        if hides is not None:
            ran.append(mask)
    if case.mask is not None:
        return None  # a mask over pairs, which was seen to hide
    if not ran:
        return only_alone(padded)
    case.given.add(name)
    outs = [(mask, output_of(padded.with_mask(mask), case.x)) for mask in ran]
    changing = [m for m, out in outs if out is not None and off(out, bare) > NEAR]
    if not changing:
        return without_effect(padded, ran[0])
    if any(keeps_apart(padded, mask) for mask in changing):
        return f"{name!r} as a padding mask"
    return wrongly_hidden(padded, changing[0])


def asked(case: Case) -> str | None:
    """The parameter of forward that takes a padding mask, by its name."""
    for p in parameters_of(case.module):
        letters = plain(p.name)
        if isinstance(p.default, bool) or OTHERS.search(letters):
            continue
        if ASKS.search(letters):
            return p.name
    return None


def keeps_apart(padded: Padded, mask: torch.Tensor) -> bool:
    """Whether the hidden tokens reach no other: right beside positions of its own."""
    x = padded.case.x.clone()
    hidden = slice(0, HIDDEN) if padded.causal else slice(-HIDDEN, None)
    x[-1, hidden] += 1.0
    one = output_of(padded.with_mask(mask), padded.case.x)
    two = output_of(padded.with_mask(mask), x)
    if not padded.causal or one is None or two is None:
        return False
    return off(padded.real(two), padded.real(one)) <= FAR


def wrongly_hidden(padded: Padded, mask: torch.Tensor) -> Diagnosis | None:
    case, name = padded.case, padded.name
    run = padded.with_mask(mask).record()
    added = added_by(run, case.record())
    on_x = [node for node in added if node.uses_x]
    if not added:
        return None
    return case.file.fault(
        added[0],
        "mask",
        f"{name!r} was tried as a padding mask, in every usual form: none gives a "
        "padded sentence the output that it has without its padding.",
        f"shape {tuple(added[0].value.shape)}",
        seen_at=on_x[0].line if on_x else None,
        node=on_x[0] if on_x else None,
    )


def without_effect(padded: Padded, mask: torch.Tensor) -> Diagnosis | None:
    """A mask that forward works on and that changes no number of the output."""
    case, name = padded.case, padded.name
    run = padded.with_mask(mask).record()
    added = added_by(run, case.record())
    if not added:
        case.notes.append(f"{name!r} changes nothing: forward does not use it.")
        return None
    lost = next((node for node in reversed(added) if not is_read(run, node)), None)
    if lost is None:
        return None
    later = run.nodes[lost.index + 1 :]
    reader = next((n for n in later if shares_input(n, lost)), None)
    fault = thrown_away(case, lost, "the result", reader)
    fault.kind = "mask"
    fault.message = (
        f"{name!r} has no effect, in any usual form: the output is the same with it "
        f"and without. {fault.message}"
    )
    return fault


def is_read(run: Run, node: Node) -> bool:
    """Whether a later operation is given a result."""
    later = run.nodes[node.index + 1 :]
    return any(t is node.entry.tensor for n in later for t in n.entry.inputs)


def shares_input(node: Node, lost: Node) -> bool:
    return any(t is other for t in node.entry.inputs for other in lost.entry.inputs)


def only_alone(padded: Padded) -> Diagnosis | None:
    """A mask that fits one sentence, and in no form two."""
    case, name = padded.case, padded.name
    x = case.x[-1:].contiguous()
    alone = Padded(case, name, padded.causal)
    for (words, mask), (_, both) in zip(
        alone.forms(1, case.T), padded.forms(case.B, case.T), strict=True
    ):
        if mask.dim() != 2 or not alone.hides(mask, x):
            continue
        run = padded.with_mask(both).record()
        if run.error is None:
            return None
        case.given.add(name)
        error = first_line(run.error)
        return case.file.fault(
            run.place,
            "mask",
            f"{name!r} ({words}) hides the padding of one sentence rightly; for "
            f"{case.B} sentences, a row for each, it raises {error}.",
            error,
        )
    return None


def added_by(run: Run, bare: Run) -> list[Node]:
    """The operations that are not in the run without a mask."""
    before = {(node.line, node.entry.expression) for node in bare.nodes}
    return [n for n in run.nodes if (n.line, n.entry.expression) not in before]
