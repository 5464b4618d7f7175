"""The verdict on a module: a fault, no fault, or why it cannot be told."""

import inspect
import math
import re
import traceback
from collections.abc import Iterator
from typing import Any

from steps.debugger.arguments import Sizes, fill
from steps.debugger.case import Case
from steps.debugger.explain import blame, raised, return_place, two_roles
from steps.debugger.file import File, one_based
from steps.debugger.judge import CONTEXTS, OUTPUT, Judgement, distance
from steps.debugger.load import first_line, rank
from steps.debugger.probes import (
    NEAR,
    PROBES,
    Probe,
    all_right,
    first_fault,
    first_mask,
    outputs,
    random_in_eval,
)
from steps.debugger.repair import Proof, Repair, find, right_output
from steps.debugger.result import Diagnosis
from steps.debugger.run import Node, place_of
from steps.debugger.settings.rotary import rotary
from steps.errors import UserError
from steps.pytorch import nn, torch
from steps.walk.source import Place

# A size given where a pair of them, a layer or a config was wanted.
OTHER_KIND = re.compile(
    r"'(int|float)' object (is not (subscriptable|iterable|callable)|has no len)"
)
OWN_CHECK = ("raise", "assert")  # what a reader's own check starts with


def conclude(case: Case, quick: bool = False) -> Diagnosis:
    """What the run shows, where it is right other settings, and what mends a fault.

    quick: do not look for that.
    """
    other = other_input(case)
    if other:
        raise UserError(other)
    result = of_run(case)
    if result.verdict != "no fault" and not result.proof and case.run.error is None:
        result = equal_all_the_same(case) or result
    fault: Diagnosis | str | None = None
    if result.verdict == "cannot tell":
        fault = rotary(case)
    if result.verdict == "no fault" or isinstance(fault, Diagnosis):
        found = (fault, rotary) if isinstance(fault, Diagnosis) else first_fault(case)
        if found is not None:
            fault, probe = found
            fault.trace, fault.proof = result.trace, fault.proof or SHOWN
            mark(fault)
            result = fault if quick else repaired_setting(case, fault, probe)
        else:
            result.notes += remarks(case)
    elif result.verdict == "fault" and not result.proof:
        result = proved(case, result, quick)
    result.examined = described(case)
    result.risks, result.tried = case.risks, case.tried
    result.not_tried = case.not_tried
    return result


def equal_all_the_same(case: Case) -> Diagnosis | None:
    """No fault, where the output is right although its stages were not recognised."""
    proof = right_output(case)(case.copied())
    if proof is None or not proof.usual:
        return None
    return Diagnosis(
        case.file.path,
        "no fault",
        proof=f"{EQUAL} {heads_of(case, proof)} from its own weights, to "
        f"{proof.apart:.0e}.",
        trace=rows(case, None),
    )


EQUAL = "the output equals"
SHOWN = "it was run so, as said above; in the plain setting its output is right."
# What no plain attention does before its output: a fault of such a module is no proof.
UNUSUAL = re.compile(
    r"relu|gelu|elu|silu|sigmoid|tanh|softplus|sin|cos|normalize|norm|topk|sort|gather|"
    r"roll|pad|unfold|cumsum|fft|conv|view_as_complex|polar"
)


def proved(case: Case, finding: Diagnosis, quick: bool) -> Diagnosis:
    """The finding with its proof: a change that mends it, or what the run shows."""
    if not quick:
        repairs = find(
            case,
            prefer=finding.line,
            spare=lambda r: not r.proof.usual or omits(case, r),
            confirm=lambda module: all_right(case, module, PROBES),
        )
        if repairs:
            return mended(case, finding, repairs)
    finding.proof = demonstration(case)
    if finding.proof:
        return finding
    where = f" at line {finding.line}" if finding.line else ""
    doubt = (
        f"From line {case.seen} on the numbers are of no stage of attention"
        if case.run.error is None
        else f"It raises {first_line(case.run.error)}{where}"
    )
    message = (
        f"{doubt}, and nothing that was tried proves that this is a fault: it may be "
        "attention of another kind, or want other arguments (--build, --call)."
    )
    return Diagnosis(finding.file, "cannot tell", message=message, trace=finding.trace)


def repaired_setting(case: Case, fault: Diagnosis, probe: Probe) -> Diagnosis:
    """A fault that another setting shows, with the change that mends it, if found."""

    def accept(module: nn.Module) -> Proof | None:
        return Proof(None, 0.0) if all_right(case, module, [probe]) else None

    repairs = find(
        case,
        accept=accept,
        prefer=fault.line,
        confirm=lambda module: all_right(case, module, PROBES),
    )
    near = [r for r in repairs if fault.line in dict(r.changes)] or repairs
    if near:
        proof = "with the change it was run in the same way, and is right."
        fault.mend([repair.json for repair in near], proof)
    return fault


def omits(case: Case, repair: Repair) -> bool:
    """Whether a change only leaves out what other kinds of attention have by design."""
    source = case.file.source
    lines = source.lines if source is not None else []

    def names(text: str) -> set[str]:
        return set(re.findall(r"\w+(?=\()", text))

    old = names(" ".join(lines[line - 1] for line, _ in repair.changes))
    new = names(" ".join(text for _, text in repair.changes))
    after = case.judgement is not None and case.judgement.changed_after
    return not after and new < old and any(map(UNUSUAL.search, old - new))


def mended(case: Case, finding: Diagnosis, repairs: list[Repair]) -> Diagnosis:
    """The fault that a repair proves: at its line, with the change and its proof."""
    best = repairs[0]
    several = len(best.changes) > 1 and finding.line is not None
    if finding.line not in dict(best.changes) and not several:
        seen = finding.seen_at or finding.line
        place = Place(case.file.path, best.line, best.line, None, None)
        finding.line, finding.column, finding.kind = best.line, None, best.kind
        finding.statement, finding.got = case.file.statement(place), ""
        finding.message = MENDED
        if seen not in (None, best.line):
            finding.message += f" It shows at line {seen}."
            finding.seen_at = seen
    before = f"what is returned is {best.without:.2g} off"
    if math.isnan(best.without):
        before = "what is returned has NaN"
    elif best.without == math.inf:
        raises = case.run.error is not None
        before = "forward raises" if raises else "what is returned has another shape"
    proof = (
        f"with the change {EQUAL} {heads_of(case, best.proof)}, to "
        f"{best.proof.apart:.0e}; without it {before}."
    )
    finding.mend([repair.json for repair in repairs], proof)
    return finding


# What is said of a fault that its repair alone explains.
MENDED = "As it stands, this line keeps the output from being that of attention."


def demonstration(case: Case) -> str:
    """What of a run shows a fault by itself, "" where nothing does.

    That is an output of plain attention that is not equal to that of its own heads, or
    an operation that fails on queries, keys or values of the plainest input.
    """
    run = case.run
    after = case.judgement.changed_after if case.judgement is not None else None
    if after is not None and not after.params:
        return f"the output equals {heads_of(case)} before this line, and not after it."
    last = case.wrong.index if case.wrong is not None else len(run.nodes)
    ran = [n for n in run.nodes if n.uses_x and n.index <= last]
    unusual = [n for n in ran if UNUSUAL.search(n.entry.function)]
    told = case.built is None or case.built.heads_asked
    learnt = {p for n in run.nodes for p, t in n.params.items() if t.dim() >= 2}
    if isinstance(run.error, NameError | AttributeError) and run.place is not None:
        return f"called with {case.said}, it raises this error."
    if case.judgement is None or unusual or case.made_up or not told:
        return ""
    if run.error is not None:
        given = run.failed is not None and bool(learnt)
        return f"called with {case.said}, it raises this error." if given else ""
    roles = {path for p in case.found for path in p.paths}
    spare = [path for path in learnt - roles if case.weights[path].dim() > 2]
    if not run.fused and (len(learnt - roles) > 1 or spare):
        return ""
    return f"its output is not that of {heads_of(case)} from its own projections of x."


OTHER_INPUTS = {
    "embedding": "token numbers",
    "embedding_bag": "token numbers",
    "one_hot": "token numbers",
    "conv2d": "pictures",
    "conv3d": "pictures",
}


def other_input(case: Case) -> str:
    """What a module takes that fails on vectors at once, and which part could be
    examined."""
    failed = case.run.failed
    if failed is None or any(node.params for node in case.run.nodes):
        return ""
    takes = OTHER_INPUTS.get(getattr(failed[1], "__name__", ""))
    if takes is None:
        return ""
    parts = case.module.named_modules()
    inside = [name for name, part in parts if name and rank(type(part)) < 3]
    better = f": {inside[0]!r} can be examined by itself" if inside else ""
    return (
        f"{type(case.module).__name__} takes {takes}, and attention takes a vector for "
        f"each token{better}"
    )


def described(case: Case) -> str:
    how = case.built.how if case.built is not None else type(case.module).__name__
    return f"{how}, called with {case.said}; x of shape {case.shape}"


def of_run(case: Case) -> Diagnosis:
    """The verdict from the run alone."""
    run, judgement = case.run, case.judgement
    drawn = random_in_eval(case) if run.error is None else None
    if drawn is not None:
        drawn.trace = rows(case, drawn)
        return drawn
    trace = "".join(traceback.format_tb(run.error.__traceback__)) if run.error else ""
    if run.error is not None and "flex_attention" in trace:
        refused = f"flex_attention refuses these sizes: {first_line(run.error)}"
        return cannot_tell(case, refused, None)
    if judgement is None:
        return without_heads(case)
    finding = (None if judgement.clean else blame(case)) or two_roles(case)
    other = another_kind(judgement, finding)
    if other:
        return cannot_tell(case, other, finding)
    path = case.file.path
    result = finding or Diagnosis(path, "no fault", proof=clean_proof(case))
    result.trace = rows(case, finding)
    return result


def unwanted_mask(case: Case) -> Diagnosis:
    """The fault of a right causal module that was not to be causal."""
    node = first_mask(case) or case.run.node_of(case.run.outputs[0])
    result = case.file.fault(
        node,
        "mask",
        "It hides the tokens after each token, and here every token may look at every "
        "other. All else is right.",
        "a causal mask",
    )
    result.trace = rows(case, result)
    mark(result)
    result.examined = described(case)
    return result


def cannot_tell(case: Case, message: str, finding: Diagnosis | None) -> Diagnosis:
    trace = rows(case, finding)
    return Diagnosis(case.file.path, "cannot tell", message=message, trace=trace)


def another_kind(judgement: Judgement, finding: Diagnosis | None) -> str:
    """Why a module is another kind of attention, not a right or wrong one of this."""
    changed, fault = judgement.heads.changed == "changed", judgement.fault
    if finding is None:
        return (
            "Each token's queries or keys are changed by themselves before the scores "
            "(a norm, or an activation), which the article does not do and which "
            "cannot be judged here. Everything from the scores on is right."
            if changed
            else ""
        )
    if changed and judgement.progress < 300:
        return (
            "Queries or keys are changed by themselves and no scores are made of them: "
            "this is another kind of attention, which cannot be judged here."
        )
    labels = (
        [judgement.labels.get(n) for n in fault.inputs] if fault is not None else []
    )
    names = [label.stage.name for label in labels if label is not None]
    scores = all(n.startswith("scores") for n in names)
    fused = fault is not None and "scaled_dot_product" in fault.entry.function
    if fault is None or not names or not (scores or fused):
        return ""
    learnt = any(t.dim() >= 2 for t in fault.params.values())
    if not learnt and not any(graded(t) for t, _ in fault.constants):
        return ""
    what = "learnt numbers" if learnt else "numbers that grow with the distance"
    return (
        f"At line {fault.line} {what} change the scores (positions, perhaps), which "
        "the article does not do and which cannot be judged here. Up to there all is "
        "right."
    )


def graded(tensor: torch.Tensor) -> bool:
    """Whether a table has more numbers than a mask would."""
    if tensor.dim() < 2 or not tensor.is_floating_point():
        return False
    return tensor[torch.isfinite(tensor)].unique().numel() > 3


# ---------------------------------------------------------------- the trace


def rows(case: Case, finding: Diagnosis | None) -> list[dict[str, Any]]:
    """The trace: see steps.debugger.result."""
    made = []
    wrong: set[Node] = set()
    for node in case.run.nodes:
        first = finding is not None and finding.node is node
        if first or not wrong.isdisjoint(node.inputs):
            wrong.add(node)
        ok: bool | None = None
        if case.judgement is not None and node.uses_x:
            good = node in case.judgement.good
            ok = good if good or finding is not None else None
        row = row_of(case, node, False if node in wrong else ok)
        row["first_wrong"], row["follows"] = first, node in wrong and not first
        made.append(row | {"values": node.value})
    return made


def row_of(case: Case, node: Node, ok: bool | None) -> dict[str, Any]:
    entry, place, label = node.entry, node.entry.place, case.labels.get(node)
    stage = None
    if label is not None:
        stage = label.stage.name + (f", {label.index}" if label.index else "")
    elif ok or not node.uses_x:
        stage = ""
    return {
        "line": place.line,
        "column": one_based(place.column),
        "end_line": place.end_line,
        "end_column": one_based(place.end_column),
        "statement": entry.statement,
        "expression": entry.expression,
        "name": entry.name,
        "function": entry.function,
        "shape": list(entry.shape),
        "stage": stage,
        "axes": list(label.axes) if label is not None else [],
        "origin": entry.origin,
        "ok": ok,
    }


def mark(result: Diagnosis) -> None:
    """Mark the row of the trace at the fault's line, where none is marked."""
    if not any(row["first_wrong"] for row in result.trace):
        for row in result.trace:
            if row["line"] in (result.line, result.seen_at):
                row["first_wrong"], row["ok"] = True, False
                return


# ---------------------------------------------------------------- no fault


def clean_proof(case: Case) -> str:
    """What was compared, of a module without a fault."""
    heads = heads_of(case)
    mask = "no mask was asked for and none is applied"
    if case.causal:
        mask = "no token reads a later one"
    off = furthest(case)
    near = f", to {off:.0e}" if 0 < off < 1 else ""
    return f"{EQUAL} {heads}, from its own projections of x{near}; {mask}."


def heads_of(case: Case, proof: Proof | None = None) -> str:
    """The heads that something was compared with, in words."""
    H = case.judgement.heads.H if case.judgement is not None else case.sizes.H
    if proof is not None and proof.reading is not None:
        H = proof.reading.H
    return f"{H} heads computed separately" if H > 1 else "one head computed separately"


def furthest(case: Case) -> float:
    """The largest difference of what was returned, or its part that is attention, from
    the heads computed separately; NaN where that is not known."""
    ranked = [(label.stage.rank, n.index, n) for n, label in case.labels.items()]
    last = max((r for r in ranked if CONTEXTS <= r[0] <= OUTPUT), default=None)
    return distance(last[2].value, case.labels[last[2]]) if last else math.nan


def remarks(case: Case) -> list[str]:
    """Notes for a clean module: what differs from the article, and what was said."""
    notes = list(case.notes)
    different = "; ".join(differences(case))
    if different:
        notes.insert(0, f"Different from the article, and right: {different}.")
    if case.said.count(",") and "mask" in case.said:
        notes.append(f"The mask is the caller's: forward was called with {case.said}.")
    return notes


def differences(case: Case) -> Iterator[str]:
    """What a right module does in another way than the article."""
    if case.judgement is None or not case.judgement.clean:
        return  # cleared by its weights: its stages are not known
    heads = case.judged.heads
    names = {label.stage.name for label in case.labels.values()}
    if heads.layout and not heads.given:
        order = heads.layout.replace("3", "qkv").replace("2", "kv")
        yield f"one packed layer holds the roles, in the order ({order})"
    if any(len(ps) > 1 for ps in heads.roles.values()):
        yield "every head has layers of its own"
    if heads.changed == "rotated":
        yield (
            "queries and keys are turned by their positions (rotary), each vector's "
            "length kept"
        )
    if heads.kv_heads:
        yield f"{heads.kv_heads} key and value heads serve {heads.H} query heads"
    if any("scaled" in n and n.startswith(("queries", "keys")) for n in names):
        yield "the scale is put on queries or keys before the product"
    if {"weights, masked, not renormalised", "weights"} <= names:
        yield (
            "the mask comes after the softmax, and the rows are made to sum to 1 again"
        )
    if names.isdisjoint({"scores", "scores, scaled", "weights"}):
        yield "scores, mask, softmax and values are one fused call"
    if not case.causal:
        yield "every token reads every token (no mask)"


# ---------------------------------------------------------------- without heads


def constructor_raised(
    cls: type, path: str, sizes: Sizes, error: Exception
) -> Diagnosis:
    """The constructor raised at the probe's sizes."""
    said = first_line(error)
    given = fill(cls, sizes, {}).items()
    shown = ", ".join(f"{k}={v!r}" for k, v in given if not isinstance(v, dict))
    call = f"{cls.__name__}({shown})"
    result = File(path).fault(
        place_of(error, path),
        "constructor",
        f"The constructor, called as {call}, raises {said}.",
        got=said,
    )
    result.examined = call
    last = traceback.extract_tb(error.__traceback__)[-1].filename
    blind = not given and inspect.signature(cls).parameters  # as with *args alone
    other = isinstance(error, TypeError) and OTHER_KIND.search(said)
    own = last == path and result.statement.lstrip().startswith(OWN_CHECK)
    ours = last == fill.__code__.co_filename  # a config that lacks the name
    refused = isinstance(error, AssertionError) or result.line is None
    if own or ours or blind or other or refused:
        return Diagnosis(
            path,
            "cannot tell",
            message=f"the constructor refuses {call}: {said}; "
            f'--build "{cls.__name__}(...)" says how to make it',
        )
    return result


def without_heads(case: Case) -> Diagnosis:
    """Where queries, keys and values are not found: what raised, or outputs show."""
    run = case.run
    if run.error is not None:
        return raised_without_heads(case)
    turned = next((node for node in run.nodes if deals_out(case, node)), None)
    if turned is not None and not case.found:
        result = case.file.fault(
            turned.entry.place,
            "split",
            f"It deals x out into shape {tuple(turned.entry.shape)} in the order of "
            "memory: the numbers of one token end up in another sequence's or token's "
            "place.",
            "tokens in the wrong places",
        )
        result.trace = rows(case, result)
        mark(result)
        return result
    said = list(black_box(case))
    found = f"{len(case.found)} projection{'s' if len(case.found) != 1 else ''}"
    reason = (
        f"Black-box report: {found} of x found, which is too few to tell queries, keys "
        "and values apart, so only the outputs were compared."
    )
    result = cannot_tell(case, reason, None)
    # With what the reader hands over, an output may read anything.
    leaks = [text for bad, text in said if bad and case.asked_call is None]
    if leaks:
        node = run.node_of(run.output) if run.output is not None else None
        message = " ".join([reason, *leaks])
        result = case.file.fault(return_place(case, node), "black box", message)
        result.proof = "it was run so: these are its outputs."
        result.trace = rows(case, result)
    result.notes = [text for bad, text in said if not bad]
    return result


def raised_without_heads(case: Case) -> Diagnosis:
    run, finding = case.run, raised(case)
    assert run.error is not None
    assert finding is not None
    own = run.failed is None and finding.statement.lstrip().startswith(OWN_CHECK)
    if own or run.place is None:
        at = f" at line {finding.line}" if finding.line else ""
        message = (
            f"forward, called with {case.said} of shape {case.shape}, raises "
            f"{first_line(run.error)}{at}"
        )
        return cannot_tell(case, message, None)
    finding.trace = rows(case, finding)
    return finding


def deals_out(case: Case, node: Node) -> bool:
    """Whether an operation moves the numbers of x from token to token."""
    moved = node.reads_x and node.entry.origin != "computed" and node not in case.plain
    return moved and sorted(node.entry.shape) == sorted(case.x.shape)


def black_box(case: Case) -> Iterator[tuple[bool, str]]:
    """(bad, sentence) for what outputs alone can show."""
    x, T = case.x, case.T
    try:
        out = outputs(case, x)
    except Exception as error:
        yield False, f"It raises {first_line(error)}."
        return
    tensor = isinstance(out, torch.Tensor)
    if not tensor or out.shape[: x.dim() - 1] != x.shape[:-1]:
        shape = tuple(out.shape) if tensor else type(out).__name__
        yield False, f"The output is {shape} for an input of {tuple(x.shape)}."
        return
    if bool(out.isnan().any()):
        yield True, "The output has NaN."
        return
    near = NEAR * (1 + float(out.abs().max()))

    def alike(one: torch.Tensor, two: torch.Tensor) -> bool:
        return bool(((one - two).abs() <= near).all())

    before, other = out[..., : T - 1, :], x.clone()
    other[..., T - 1, :] += 1.0
    ahead = not alike(outputs(case, other)[..., : T - 1, :], before)
    causal = "it is not causal" if ahead else "it is causal"
    if not case.claims:
        causal = "it is not causal, and does not claim to be" if ahead else ""
    earlier = (
        "changes earlier outputs" if ahead else "leaves earlier outputs as they were"
    )
    more = f": {causal}" if causal else ""
    yield case.claims and ahead, f"Changing the last token {earlier}{more}."
    if case.claims:
        stable = alike(outputs(case, x[..., : T - 1, :].contiguous()), before)
        same = "the same outputs for its" if stable else "other outputs for the same"
        yield not stable and not ahead, f"A shorter input has {same} tokens."
    if x.dim() == 3 and x.shape[0] > 1:
        if alike(outputs(case, x[:1].contiguous()), out[:1]):
            yield False, "A sequence alone has the same outputs as in a batch."
        else:
            mixed = "sequences are mixed"
            yield True, f"A sequence alone has other outputs than in a batch: {mixed}."
