"""The reference: every stage of attention, computed plainly from given q, k and v, and
the match of a tensor with them.

Axes: B sequences, H heads, T query tokens, S key tokens, D features a head.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from steps.pytorch import torch

CLOSE = 2e-5  # of the largest number: a detour through float32 is no fault
HIDDEN = 40.0  # a blocked score this far below the rest leaves no weight: e^-40


@dataclass
class Stage:
    """One stage: its tensor, its axes, and how a match with it counts."""

    name: str
    tensor: torch.Tensor
    axes: tuple[str, ...]
    rank: int  # how far along the way it is
    part: str = ""  # "scale", "mask", "sum": right only if that follows

    def __post_init__(self) -> None:
        self.numel = self.tensor.numel()
        self.top = float(self.tensor.abs().max()) or 1.0
        self.sums: dict[tuple[int, ...], torch.Tensor] = {}

    def sum_over(self, fixed: tuple[int, ...]) -> torch.Tensor:
        if fixed not in self.sums:
            rest = tuple(d for d in range(self.tensor.dim()) if d not in fixed)
            self.sums[fixed] = self.tensor.sum(rest) if rest else self.tensor
        return self.sums[fixed]


@dataclass
class Label:
    """A stage found in a tensor: the axis groups in the tensor's order."""

    stage: Stage
    axes: list[str]
    index: str = ""  # which slice, such as "head 2"

    @property
    def swapped(self) -> bool:
        """Keys before queries."""
        order = self.order
        return "T" in order and "S" in order and order.index("S") < order.index("T")

    @property
    def order(self) -> list[str]:
        return [a for group in self.axes for a in group.split("*")]


@lru_cache(maxsize=4096)
def orders(shape: tuple[int, ...], sizes: tuple[tuple[str, int], ...]) -> tuple:
    """Every way to group the named axes, in some order, into the given shape."""
    if not shape:
        return ((),) if all(size == 1 for _, size in sizes) else ()
    found = []
    for count in range(len(sizes) + 1):
        for group in itertools.permutations(sizes, count):
            if math.prod(size for _, size in group) != shape[0]:
                continue
            rest = tuple(pair for pair in sizes if pair not in group)
            names = tuple(name for name, _ in group)
            if mixes(names):
                continue
            for more in orders(shape[1:], rest):
                found.append((names, *more))
    return tuple(found)


def mixes(names: tuple[str, ...]) -> bool:
    """Axes merged as no right route does: heads after features, or with tokens."""
    for first, second in itertools.pairwise(names):
        if (first, second) in (("T", "D"), ("S", "D"), ("D", "T"), ("D", "S")):
            return True
        if (first, second) in (("T", "S"), ("S", "T"), ("D", "B"), ("B", "D")):
            return True
    return "B" not in names and "H" in names and ("T" in names or "S" in names)


APART = ("D", "H")  # never merged in this order, but in readings of strided heads


def candidates(
    shape: tuple[int, ...],
    axes: tuple[str, ...],
    sizes: tuple[int, ...],
    apart: tuple[str, str] = APART,
) -> Iterator:
    """(permutation, axis groups) under which a stage could have this shape."""
    kept = tuple((a, n) for a, n in zip(axes, sizes, strict=True) if n != 1)
    squeezed = tuple(n for n in shape if n != 1)
    for groups in orders(squeezed, kept):
        flat = [name for group in groups for name in group]
        if any(apart in itertools.pairwise(group) for group in groups):
            continue
        yield [axes.index(name) for name in flat], ["*".join(group) for group in groups]


def match(
    value: torch.Tensor, stage: Stage, total: float, apart: tuple[str, str] = APART
) -> Label | None:
    """The stage, or a slice of it, that `value` holds; `total` is the sum of `value`.

    Every axis may be anywhere, neighbours may be merged, and loops over sequences,
    heads or tokens may hold one slice at a time.
    """
    if value.numel() == 0 or stage.numel % value.numel():
        return None
    ratio = stage.numel // value.numel()
    near = CLOSE * stage.top * max(value.numel(), 1)
    sizes = tuple(stage.tensor.shape)
    loops = [d for d, a in enumerate(stage.axes) if a in "BHTS"] if ratio > 1 else []
    for count in range(len(loops) + 1):
        for fixed in itertools.combinations(loops, count):
            if math.prod(sizes[d] for d in fixed) != ratio:
                continue
            sums = stage.sum_over(fixed)
            hits = ((sums - total).abs() <= near).nonzero() if fixed else None
            if hits is None:
                if not abs(float(sums) - total) <= near:
                    continue
                label = compare(value, stage.tensor, stage, stage.axes, apart)
                if label:
                    return label
                continue
            for hit in hits.tolist():
                at: list = [slice(None)] * len(sizes)
                for d, i in zip(fixed, hit, strict=True):
                    at[d] = i
                rest = tuple(a for d, a in enumerate(stage.axes) if d not in fixed)
                label = compare(value, stage.tensor[tuple(at)], stage, rest, apart)
                if label:
                    words = {"B": "sequence", "H": "head", "T": "query", "S": "key"}
                    label.index = ", ".join(
                        f"{words[stage.axes[d]]} {i + 1}"
                        for d, i in zip(fixed, hit, strict=True)
                    )
                    return label
    return None


def compare(
    value: torch.Tensor,
    reference: torch.Tensor,
    stage: Stage,
    axes: tuple[str, ...],
    apart: tuple[str, str],
) -> Label | None:
    near = CLOSE * stage.top
    axes = tuple(a for a, n in zip(axes, reference.shape, strict=True) if n != 1)
    reference = reference.squeeze()
    sizes = tuple(reference.shape)
    for order, groups in candidates(tuple(value.shape), axes, sizes, apart):
        moved = (
            reference.permute(order).reshape(value.shape)
            if order
            else reference.reshape(value.shape)
        )
        if bool(((moved - value).abs() <= near).all()):
            return Label(stage, spread(value.shape, groups))
    return None


def spread(shape: tuple[int, ...], groups: list[str]) -> list[str]:
    """The groups with "1" where the shape has an axis of one."""
    left = iter(groups)
    return ["1" if size == 1 else next(left, "1") for size in shape]


def match_masked(
    value: torch.Tensor, stage: Stage, future: torch.Tensor, apart: tuple[str, str]
) -> Label | None:
    """Scores with the future blocked: equal where allowed, far below where not."""
    if stage.numel % max(value.numel(), 1):
        return None
    blocked = future.expand(stage.tensor.shape)
    ratio = stage.numel // value.numel()
    sizes = tuple(stage.tensor.shape)
    slices: list[tuple] = [()]
    if ratio > 1:
        slices = [
            fixed
            for count in (1, 2)
            for fixed in itertools.combinations([0, 1], count)
            if math.prod(sizes[d] for d in fixed) == ratio
        ]
    for fixed in slices:
        for hit in itertools.product(*(range(sizes[d]) for d in fixed)):
            at: list = [slice(None)] * 4
            for d, i in zip(fixed, hit, strict=True):
                at[d] = i
            part, hidden = stage.tensor[tuple(at)], blocked[tuple(at)]
            rest = tuple(
                a for d, a in enumerate(stage.axes) if d not in fixed and sizes[d] != 1
            )
            part, hidden = part.squeeze(), hidden.squeeze()
            for order, groups in candidates(
                tuple(value.shape), rest, tuple(part.shape), apart
            ):
                moved = part.permute(order).reshape(value.shape)
                cut = hidden.permute(order).reshape(value.shape)
                if bool(value.isnan().any()):
                    continue
                open_ = ~cut
                if not bool(((moved - value).abs() <= CLOSE * stage.top)[open_].all()):
                    continue
                lowest = float(part.min())
                if bool(cut.any()) and float(value[cut].max()) > lowest - HIDDEN:
                    continue
                return Label(stage, spread(value.shape, groups))
    return None


class Reference:
    """The stages of attention over given heads.

    q: (B, H, T, D), k and v: (B, H, S, D), in float64. causal: block the future.
    """

    def __init__(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        causal: bool,
        strided: bool = False,
    ) -> None:
        self.strided = strided
        self.apart = ("H", "D") if strided else APART
        self.q, self.k, self.v, self.causal = q, k, v, causal
        self.D, self.T = q.shape[-1], q.shape[-2]
        root = self.D**-0.5
        self.future = torch.ones(self.T, self.T, dtype=torch.bool).triu(1)
        self.raw = q @ k.transpose(-2, -1)
        scaled = self.raw * root
        masked = scaled.masked_fill(self.future, -torch.inf) if causal else scaled
        self.weights = masked.softmax(-1)
        self.unscaled = (masked / root).softmax(-1)
        self.contexts = self.weights @ v
        bhtd, bhsd, bhts = (
            ("B", "H", "T", "D"),
            ("B", "H", "S", "D"),
            ("B", "H", "T", "S"),
        )
        fourth = self.D**-0.25
        two, mask = 1 / math.log(2), "mask" if causal else ""
        queries = [
            (1.0, "queries"),
            (root, "queries, scaled"),
            (fourth, "queries, half scaled"),
            (root * two, "queries, scaled for base 2"),
        ]
        self.stages = [
            Stage("weights", self.weights, bhts, 6),
            Stage("contexts", self.contexts, bhtd, 7),
        ]
        self.stages += [Stage(n, q * f, bhtd, 2) for f, n in queries]
        self.stages += [
            Stage(n.replace("queries", "keys"), k * f, bhsd, 2) for f, n in queries[:3]
        ]
        self.stages.append(Stage("values", v, bhsd, 2))
        self.scores = [
            Stage("scores", self.raw, bhts, 3, "scale"),
            Stage("scores, scaled", scaled, bhts, 4, mask),
            Stage("scores, half scaled", self.raw * fourth, bhts, 3, "scale"),
            Stage("scores, scaled for base 2", scaled * two, bhts, 4, mask),
        ]
        self.stages += self.scores
        if causal:
            open_weights = scaled.softmax(-1)
            self.unmasked = open_weights
            zeroed = open_weights.masked_fill(self.future, 0.0)
            self.stages.append(
                Stage("weights, unmasked", open_weights, bhts, 5, "mask")
            )
            self.stages.append(
                Stage("weights, masked, not renormalised", zeroed, bhts, 5, "sum")
            )
        self.extra = (
            [
                Stage(
                    "weights, averaged over heads",
                    self.weights.mean(1),
                    ("B", "T", "S"),
                    6,
                )
            ]
            if q.shape[1] > 1
            else []
        )

    def holds(self, value: torch.Tensor, stage: Stage) -> bool:
        """Whether `value` has the numbers of a stage, in any order of axes."""
        return match(value, stage, float(value.sum()), self.apart) is not None

    def label(self, value: torch.Tensor) -> Label | None:
        """What stage the tensor holds, or None."""
        if not value.is_floating_point() or value.numel() < 2:
            return None
        value = value.double()
        total = float(value.sum())
        if math.isfinite(total):
            for stage in (*self.stages, *self.extra):
                label = match(value, stage, total, self.apart)
                if label:
                    return label
        if self.causal and self.raw.numel() % value.numel() == 0:
            for stage in self.scores:
                label = match_masked(value, stage, self.future, self.apart)
                if label:
                    part = stage.part.removesuffix("mask")
                    done = replace(
                        stage,
                        name=f"{stage.name}, masked",
                        part=part,
                        rank=stage.rank if part else 5,
                    )
                    return Label(done, label.axes, label.index)
        return self.by_hand(value)

    def by_hand(self, value: torch.Tensor) -> Label | None:
        """Weights or contexts up to one number a row; scores less one number a row."""
        if bool(value.isnan().any()):
            return None
        count = value.numel()
        if count == self.weights.numel():
            return self.up_to_rows(value)
        if count == self.contexts.numel() and self.D > 1:
            return self.contexts_up_to_rows(value)
        if count == self.weights.numel() // self.T:
            return self.numbers_of_rows(value)
        return None

    def grids(
        self, value: torch.Tensor, stage: Stage
    ) -> Iterator[tuple[torch.Tensor, list[str]]]:
        """The value as the stage's own axes, in every order that it may have."""
        sizes = tuple(stage.tensor.shape)
        for order, groups in candidates(
            tuple(value.shape), stage.axes, sizes, self.apart
        ):
            if len(order) == 4:
                yield unfold(value, sizes, order), spread(value.shape, groups)

    def up_to_rows(self, value: torch.Tensor) -> Label | None:
        """Weights times one number a row, or scores less one."""

        def near(grid: torch.Tensor, weights: torch.Tensor) -> bool:
            return bool(((grid - weights).abs() < CLOSE).all())

        def stage(name: str, rank: int, part: str) -> Stage:
            return Stage(name, self.weights, ("B", "H", "T", "S"), rank, part)

        for grid, axes in self.grids(value, self.stages[0]):
            sums = grid.sum(-1, keepdim=True)
            positive = bool((grid >= 0).all()) and bool((sums > 0).all())
            if positive and bool(torch.isfinite(sums).all()):
                if near(grid / sums, self.weights):
                    return Label(stage("weights, not normalised", 5, "sum"), axes)
                if self.causal and near(grid / sums, self.unmasked):
                    name = "weights, unmasked, not normalised"
                    return Label(stage(name, 5, "mask"), axes)
            top = grid.amax(-1, keepdim=True)
            if bool(torch.isfinite(top).all()):
                soft, name = (grid - top).softmax(-1), "scores, less a number a row"
                if near(soft, self.weights):
                    return Label(stage(name, 5, ""), axes)
                if near(soft, self.unscaled):
                    return Label(stage(name, 3, "scale"), axes)
        return None

    def contexts_up_to_rows(self, value: torch.Tensor) -> Label | None:
        """Contexts times one number a row, not the same in all rows."""
        stage = Stage(
            "contexts, not normalised", self.contexts, ("B", "H", "T", "D"), 6, "sum"
        )
        for grid, axes in self.grids(value, stage):
            squares = (self.contexts**2).sum(-1, keepdim=True)
            ratio = (grid * self.contexts).sum(-1, keepdim=True) / squares
            off = (grid - ratio * self.contexts).abs()
            if not bool((off <= CLOSE * grid.abs().max()).all()):
                continue
            if bool((ratio > 0).all()) and float(ratio.max() - ratio.min()) >= 1e-9:
                return Label(stage, axes)
        return None

    def numbers_of_rows(self, value: torch.Tensor) -> Label | None:
        """The largest score of each row, or the logarithm of its sum."""
        scores = self.scores[1].tensor
        if self.causal:
            scores = scores.masked_fill(self.future, -torch.inf)
        rows = {"row maxima": scores.amax(-1), "row log-sums": scores.logsumexp(-1)}
        for name, tensor in rows.items():
            stage = Stage(name, tensor, ("B", "H", "T"), 5)
            label = match(value, stage, float(value.sum()))
            if label:
                return label
        return None


def unfold(
    value: torch.Tensor, shape: tuple[int, ...], order: list[int]
) -> torch.Tensor:
    """Undo a permutation and its merges: `value` as the stage's own axes."""
    moved = value.reshape([shape[d] for d in order])
    back = [order.index(d) for d in range(len(order))]
    return moved.permute(back)
