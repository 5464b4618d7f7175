"""Ways to call forward, and the one of their runs that is reported."""

from collections.abc import Iterator
from dataclasses import replace

from steps.debugger.calls import says_tokens_first, ways_to_call
from steps.debugger.case import Case, judge_run, masks_in, run_twice
from steps.debugger.judge import stages_read
from steps.debugger.load import first_line
from steps.debugger.run import Run
from steps.debugger.settings.precision import in_type
from steps.errors import UserError
from steps.pytorch import torch

RIGHT = 10**6  # the merit of a run without a fault


def best_way(case: Case) -> Case:
    """The case run and judged under the way to call it that is to be reported."""
    turned = says_tokens_first(case.module) and case.x.dim() == 3
    first = replace(case, tokens_first=True) if turned else case
    best = best_of(attempted(first))
    if turned and merit(best) < RIGHT:
        best = max(best, best_of(attempted(case)), key=merit)
    if merit(best) < RIGHT and best.run.fused and best.undecided:
        other = best_of(attempted(replace(case, tokens_first=True)))
        if merit(other) >= RIGHT and not other.causal:
            raise UserError(
                "takes the first axis of its input for the tokens: right where x is "
                "(tokens, sequences, features), and wrong where it is (sequences, "
                "tokens, features), for which nn.MultiheadAttention has "
                "batch_first=True"
            )
    made_up = best.made_up or ", ".join(best.way.made_up)
    if best.run.error is not None and made_up:
        raise UserError(
            f"forward also wants {made_up}, and with what was made up for it raises "
            f"{first_line(best.run.error)}; --call says what it is given"
        )
    return best


def merit(case: Case) -> int:
    """How far a run is right."""
    judgement = case.judgement
    if judgement is None:
        return 0 if case.run.error is None else -1
    return RIGHT if judgement.clean and not judgement.conflicts else judgement.progress


def ways(case: Case) -> Iterator[Case]:
    """The case, once for each way to call forward; only the reader's, if told."""
    if case.asked_call is not None:
        asked = case.asked_call
        asked.arguments(case.x)  # before any run: a mistake in it is the reader's
        yield case.again(asked.text, lambda inner, x: asked.arguments(x))
        return
    found = list(ways_to_call(case.module, case.x, case.sizes.D, case.causal))
    for way in found:
        made = case.by(way)
        made.takes_mask = any(other.mask is not None for other in found)
        yield made


def tried(case: Case) -> Iterator[Case]:
    """The case run under each way to call it, but for masks that cannot fit."""
    fits: tuple[int, ...] = ()  # the first shape of a mask with which it did not raise
    plain: Run | None = None  # one without a mask
    before, stuck = "", False  # what it raised without a mask, and so with any
    ran = False
    for case_now in ways(case):
        mask = case_now.mask
        stuck = stuck and mask is not None
        if case_now.way.last_resort and ran:
            continue
        if mask and (stuck or (fits and mask.shape != fits)):
            continue
        if mask and not fits and mask.as_numbers:
            continue  # no shape fits as booleans, nor as numbers to be added
        run_twice(case_now)
        error = case_now.run.error
        ran = ran or error is None
        if mask and error is None and plain and widened(case_now.run, plain):
            continue
        plain = plain if mask or error is not None else case_now.run
        stuck = bool(mask and error is not None and str(error) == before)
        before = before if mask else str(error)
        if error is None and mask is not None:
            fits = fits or mask.shape
        yield case_now


def widened(run: Run, plain: Run) -> bool:
    """Whether an operation's result has more axes than without the mask."""
    axes = {node.entry.place: node.value.dim() for node in plain.nodes if node.uses_x}
    return any(
        node.value.dim() > axes.get(node.entry.place, node.value.dim())
        for node in run.nodes
        if node.uses_x
    )


def attempted(case: Case) -> list[Case]:
    """The case judged under each way to call it, up to one that is clean.

    Where only the caller's mask would make it causal, a call without one is judged as
    attention that is not; the masks are tried once that is right.
    """
    attempts: list[Case] = []
    bare: Case | None = None
    for attempt in tried(case):
        run, told = attempt.run, attempt.way.switched
        left = case.by_caller and attempt.takes_mask
        if left and not attempt.mask and not told:
            attempt.causal = masks_in(run, case.T)
        if run.error is not None and run.failed is None and attempts:
            continue
        if bare is not None and merit(bare) < RIGHT and attempt.mask:
            return [bare]
        if bare is not None and merit(bare) >= RIGHT and not attempt.mask:
            continue  # another form of no mask
        judge_run(attempt)
        attempts.append(attempt)
        if left and not attempt.causal and run.error is None:
            if bare is None or merit(attempt) > merit(bare):
                bare = attempt
        elif merit(attempt) >= RIGHT and holds_in_float32(attempt):
            return [attempt]
    if bare is not None and merit(bare) < RIGHT:
        return [bare]
    if bare is not None:
        attempts.remove(bare)
        if all(attempt.run.error is not None for attempt in attempts):
            bare.notes.append("No mask that was tried fits its mask argument.")
            return [bare]
    return attempts


def holds_in_float32(case: Case) -> bool:
    """Whether a mask of ours hides by its numbers, not by all digits being lost."""
    return case.mask is None or in_type(case, torch.float32)[0] is None


def best_of(attempts: list[Case]) -> Case:
    """The attempt to report: the furthest, and one with a mask rather than for want of
    one."""
    masked = any(c.mask and c.run.error is None for c in attempts)
    pool = [c for c in attempts if not lacks_mask(c)] if masked else attempts
    return max(pool, key=merit)


def lacks_mask(case: Case) -> bool:
    """Whether forward takes a mask, was given none, and fails for that alone."""
    judgement = case.judgement
    if judgement is None or judgement.clean or case.mask or not case.takes_mask:
        return False
    if any("unmasked" in label.stage.name for label in judgement.labels.values()):
        return True
    at_once = {"queries", "keys", "values"}  # as a fused call reads them
    return judgement.reference.causal and stages_read(judgement) - {None} == at_once
