"""What is wrong with an operation's result, read off its numbers."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from steps.debugger.judge import CONTEXTS, SHARED, Judgement
from steps.debugger.run import Node, same_numbers
from steps.debugger.stages import Label, Reference, Stage
from steps.pytorch import torch

BHTD, BHSD, BHTS = ("B", "H", "T", "D"), ("B", "H", "S", "D"), ("B", "H", "T", "S")

SCORES = "The scores are"
UNSCALED = f"{SCORES} not divided by"
FOURTH_ROOT = f"{SCORES} scaled once by the fourth root"

Symptom = tuple[str, str, str]  # kind, sentence, what was made


def first(explanations: Iterable[Callable], *about: Any) -> Any:
    """What the first explanation says that has something to say."""
    return next(filter(None, (explain(*about) for explain in explanations)), None)


class Result:
    """An operation that holds no stage: its numbers, and what its inputs hold."""

    def __init__(self, judgement: Judgement, node: Node) -> None:
        self.node = node
        self.all_labels = judgement.labels
        self.labels = [
            judgement.labels[n] for n in node.inputs if n in judgement.labels
        ]
        self.reference = judgement.reference
        self.value = node.value.double()
        self.shape = tuple(node.value.shape)
        tables = [t for t, _ in node.constants]
        weights = node.params.values()
        self.kind = kind_of(self.labels, node.entry.function, weights, tables)


def symptom(judgement: Judgement, node: Node) -> Symptom:
    """What an operation that holds no stage made instead."""
    explanations = (
        no_numbers,
        softmax_over_another_axis,
        not_a_number,
        wrong_factor,
        wrong_turn,
        wrong_repeat,
        wrong_places,
        wrong_product,
        wrong_mask,
        no_route,
    )
    return first(explanations, Result(judgement, node))


def kind_of(
    labels: list[Label],
    function: str,
    weights: Iterable[torch.Tensor],
    tables: Iterable[torch.Tensor],
) -> str:
    """The part of attention that reads these stages, weights and constants."""
    names = {label.stage.name.split(",")[0] for label in labels}
    roles = names & {"queries", "keys", "values"}
    if any(label.stage.rank >= CONTEXTS for label in labels) or "contexts" in names:
        return "output" if any(t.dim() >= 2 for t in weights) else "merge"
    if "weights" in " ".join(names):
        return "values" if len(labels) > 1 else "softmax"
    if "scores" in names:
        if function in ("softmax", "_softmax", "softmin", "log_softmax"):
            return "softmax"
        return "mask" if any(t.dim() >= 2 for t in tables) else "scale"
    if len(roles) >= 2:
        return "mask" if len(roles) == 3 else "scores"
    return "split" if roles or names & PROJECTIONS else "projection"


PROJECTIONS = {"a projection", "another projection"}


# ---------------------------------------------------------------- each explanation


def no_numbers(result: Result) -> Symptom | None:
    if result.node.value.is_floating_point():
        return None
    made = f"{result.node.value.dtype} of shape {result.shape}"
    return result.kind, "Its result is no part of attention.", made


def softmax_over_another_axis(result: Result) -> Symptom | None:
    made = result.node.value
    for before in result.node.inputs:
        label, scores = result.all_labels.get(before), before.value
        if label is None or scores.shape != made.shape:
            continue
        if not label.stage.name.startswith("scores") or len(label.axes) != made.dim():
            continue
        for axis, name in enumerate(label.axes):
            over = scores.softmax(axis)
            if name == "S" or over.dtype != made.dtype:
                continue
            if torch.allclose(over, made, equal_nan=True):
                words = {"T": "queries", "H": "heads", "B": "sequences"}.get(name, name)
                return "softmax", sums_over(words), f"shape {result.shape}"
    return None


def sums_over(words: str) -> str:
    return f"The weights sum to 1 over the {words}, not over the keys of one query."


def not_a_number(result: Result) -> Symptom | None:
    value, kind = result.value, result.kind
    if not bool(value.isnan().any()):
        return None
    where = "rows" if value.dim() < 2 else f"{int(value.isnan().any(-1).sum())} rows"
    text = "Its result has NaN"
    if kind in ("softmax", "mask"):
        text += (
            ": where every key of a query is blocked, a softmax divides zero by zero"
        )
    kind = "mask" if kind == "scores" else kind
    return kind, text + ".", f"NaN in {where}, shape {result.shape}"


def wrong_factor(result: Result) -> Symptom | None:
    """The queries, keys or scores times c: the numbers' size allows only one c."""
    reference, value = result.reference, result.value
    if not bool(torch.isfinite(value).all()):
        return None
    for name, tensor, axes in (
        ("scores", reference.raw, BHTS),
        ("queries", reference.q, BHTD),
        ("keys", reference.k, BHSD),
    ):
        H = tensor.shape[1]
        wholes = {tensor.numel(): [tensor], tensor.numel() // H: tensor.unbind(1)}
        sizes = [
            float(value.norm() / whole.norm())
            for whole in wholes.get(value.numel(), [])
        ]
        for c in (sign * size for size in sizes if size for sign in (1, -1)):
            if reference.holds(value, Stage(name, tensor * c, axes, 3)):
                wanted = f"1/sqrt(head_dim) = {reference.D**-0.5:.4g} times"
                return (
                    "scale",
                    f"It holds the {name} times {factor_in_words(c, reference)}; "
                    f"after scaling it would be {wanted}.",
                    f"the {name} times {c:.4g}",
                )
    return None


def factor_in_words(c: float, reference: Reference) -> str:
    D, H, T = reference.D, reference.q.shape[1], reference.T
    width = D * H
    known = [
        (D**0.5, f"sqrt({D}), the root of head_dim"),
        (D, f"{D}, head_dim"),
        (1 / D, f"1/{D}, one over head_dim"),
        (width**-0.5, f"1/sqrt({width}), the root of the whole width"),
        (width**0.5, f"sqrt({width}), the root of the whole width"),
        (H**-0.5, f"1/sqrt({H}), the root of the number of heads"),
        (T**-0.5, f"1/sqrt({T}), the root of the number of tokens"),
        (D**-1.5, f"{D}**-1.5: scaled more than once"),
        (D**-0.75, f"{D}**-0.75: scaled more than once"),
        (1.0, "1, not scaled"),
    ]
    for exact, words in known:
        if math.isclose(abs(c), exact, rel_tol=1e-4):
            return ("minus " if c < 0 else "") + words
    return f"{c:.4g}"


def wrong_turn(result: Result) -> Symptom | None:
    """Weights or contexts by a softmax, mask or scale that is wrong in a known way."""
    value, reference = result.value, result.reference
    H = reference.q.shape[1]
    wholes = reference.weights.numel(), reference.contexts.numel()
    known = value.numel() in (*wholes, *(whole // H for whole in wholes))  # or one head
    for weights, kind, text in wrong_turns(reference) if known else ():
        contexts = Stage("contexts", weights @ reference.v, BHTD, 6)
        for stage in (Stage("weights", weights, BHTS, 6), contexts):
            whole = value.numel() in (stage.numel, stage.numel // H)
            if whole and reference.holds(value, stage):
                return kind, text, f"shape {result.shape}"
    return None


def masks(reference: Reference) -> list[tuple[torch.Tensor, str]]:
    """The right mask, and the wrong ones with what is said of them."""
    future = reference.future
    nothing, ones = torch.zeros_like(future), torch.ones_like(future)
    upside_down = "The mask is the wrong way round:"
    return [
        (future if reference.causal else nothing, ""),
        (
            nothing,
            "The scores are not masked: every token gets weight from tokens after it.",
        ),
        (
            ones.triu(0),
            "The mask hides each token from itself as well (its diagonal starts too "
            "early).",
        ),
        (ones.tril(-1), f"{upside_down} it hides the past and shows the future."),
        (~future, f"{upside_down} what may be seen is hidden."),
        (
            ones.triu(2),
            "The mask starts one place too late: each token sees the next one.",
        ),
    ]


def wrong_turns(reference: Reference) -> Iterator[tuple[torch.Tensor, str, str]]:
    """(weights, kind, sentence) for each turn that attention is known to take wrong."""
    D, H, T = reference.D, reference.q.shape[1], reference.T
    root = f"sqrt(head_dim) = sqrt({D})."
    scales = [
        (D**-0.5, ""),
        (1.0, "not scaled"),
        (D**-0.25, "scaled once by the fourth root"),
        (1 / D, "scaled by head_dim, or twice by its root"),
        ((D * H) ** -0.5, "scaled by the root of the whole width"),
        (D**0.5, "scaled by multiplying with the root"),
        (T**-0.5, "scaled by the root of the tokens"),
        (H**-0.5, "scaled by the root of the number of heads"),
    ]
    said = {"not scaled": UNSCALED}
    for factor, scale in scales:
        for number, (blocked, mask) in enumerate(masks(reference)):
            if scale == "scaled once by the fourth root" and mask:
                continue
            scores = (reference.raw * factor).masked_fill(blocked, -1e30)
            if mask:
                more = f" And the scores are {scale}." if scale else ""
                yield scores.softmax(-1), "mask", mask + more
            elif scale:
                text = said.get(scale, f"{SCORES} {scale}, not by 1 over")
                yield scores.softmax(-1), "scale", f"{text} {root}"
            if (scale, number) in (("", 0), ("", 1), ("not scaled", 0)):
                for axis, words in ((2, "queries"), (1, "heads"), (0, "sequences")):
                    yield scores.softmax(axis), "softmax", sums_over(words)
    yield (
        reference.weights.softmax(-1),
        "softmax",
        "A second softmax over the weights: blocked tokens get weight again.",
    )


def wrong_repeat(result: Result) -> Symptom | None:
    """Keys or values that several heads share, dealt out to the wrong ones."""
    for label in result.labels:
        more = result.value.numel() // label.stage.numel
        if label.stage.name.endswith(SHARED) and more > 1:
            heads = label.stage.tensor.shape[1]
            return (
                "repeat",
                f"The {heads} heads of {label.stage.name.split(',')[0]} are repeated "
                f"in an order that gives some of the {heads * more} heads of queries "
                "another head's: neighbouring heads of queries share one.",
                f"each repeated {more} times, shape {result.shape}",
            )
    return None


def wrong_places(result: Result) -> Symptom | None:
    """The right numbers in the wrong places: a split or a merge."""
    node, labels, shape, kind = result.node, result.labels, result.shape, result.kind
    same = any(same_numbers(result.value, n.value) for n in node.inputs)
    if not same and node.entry.origin not in ("rearranged", "copied"):
        return None
    where = ""
    if labels and labels[0].axes:
        axes = ", ".join(labels[0].axes)
        where = f" of the {labels[0].stage.name}, which came in as ({axes}),"
    if kind != "split" and any(label.stage.rank >= CONTEXTS for label in labels):
        kind = "merge"
    return (
        kind,
        f"The numbers{where} are in the wrong places. A shape of {shape} can be had in "
        "more than one way: view and reshape count the numbers off in the order they "
        "have, and an axis has to be moved, by transpose or permute, before or after.",
        f"numbers of other tokens or heads side by side, shape {shape}",
    )


def wrong_product(result: Result) -> Symptom | None:
    given = ", ".join(
        f"{label.stage.name} ({', '.join(label.axes)})" for label in result.labels
    )
    said = {
        "scores": f"It multiplies {given}; that is not every query with every key of "
        "its own head.",
        "values": f"It combines {given}; that is not the weights' sum over the values' "
        "tokens.",
    }
    if result.kind not in said:
        return None
    return result.kind, said[result.kind], f"shape {result.shape}"


def wrong_mask(result: Result) -> Symptom | None:
    """What a masking step did to the scores."""
    if result.kind != "mask":
        return None
    before = next((n for n in result.node.inputs if n in result.all_labels), None)
    text, got = "It does not block exactly the tokens after each token.", ""
    if before is not None and before.value.shape == result.value.shape:
        text = (
            mask_in_words(before.value.double(), result.value, result.reference) or text
        )
        got = blocked_rows(result.value)
    return "mask", text, got or f"shape {result.shape}"


def blocked_rows(scores: torch.Tensor) -> str:
    """Which rows a mask leaves no score in, and what a softmax makes of them."""
    empty = (scores == -math.inf).all(-1).reshape(-1, scores.shape[-2]).any(0)
    rows = [at + 1 for at, row in enumerate(empty.tolist()) if row]
    if not rows:
        return ""
    if rows == [1]:
        return "-inf all along the first row, which the softmax makes nan"
    return f"-inf all along {len(rows)} rows, which the softmax makes nan"


def mask_in_words(old: torch.Tensor, new: torch.Tensor, reference: Reference) -> str:
    moved, future = old != new, reference.future
    if not reference.causal and bool(moved.any()):
        return "It blocks scores, and here every token may look at every other."
    rows = moved.reshape(-1, *moved.shape[-2:]).any(0)
    if rows.shape != future.shape:
        return ""
    if not bool(moved.any()):
        return "It changes nothing: no score is blocked."
    ones = torch.ones_like(future)
    if torch.equal(rows, future):
        return (
            "It blocks the right places with numbers up to "
            f"{float(new[moved].max()):.4g}, which are not far below the other scores: "
            "after the softmax the future keeps weight."
        )
    if torch.equal(rows, ~future) or torch.equal(rows, ones.tril(-1)):
        return (
            "It blocks the past and leaves the future open: the mask is the wrong way "
            "round."
        )
    if torch.equal(rows, ones.triu(0)):
        return (
            "It blocks each token from itself as well: the first token has nothing "
            "left to see."
        )
    return "It changes every score, the visible ones too." if bool(rows.all()) else ""


def no_route(result: Result) -> Symptom:
    """Numbers that sum to 1 along the wrong axis, or that nothing explains."""
    shape = result.shape
    for axis, size in enumerate(shape):
        if size > 1 and bool((result.value.sum(axis) - 1).abs().max() < 1e-6):
            if axis == len(shape) - 1:
                break
            return (
                "softmax",
                f"The numbers sum to 1 over axis {axis}, of size {size}, not over the "
                "keys.",
                f"sums of 1 on axis {axis}",
            )
    read = (
        ", ".join(sorted(label.stage.name for label in result.labels)) or "its inputs"
    )
    text = f"It reads {read} and makes numbers that no right route has."
    return result.kind, text, f"shape {shape}"
