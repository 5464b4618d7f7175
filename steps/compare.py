"""Comparisons that can say what differed: the outcome of every check of the walk."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Outcome:
    """Whether a claim holds and, where it does not, what differed."""

    holds: bool
    detail: str = ""

    def __bool__(self) -> bool:
        return self.holds


def equal(got: Any, expected: Any) -> Outcome:
    """Exactly the same: tensors of one shape bit for bit, anything else by `==`."""
    if hasattr(got, "shape") and hasattr(expected, "shape"):
        return _tensors(got, expected, 0.0)
    return Outcome(got == expected, f"got {got!r}, expected {expected!r}")


def close(got: Any, expected: Any, atol: float = 1e-5) -> Outcome:
    """Tensors of one shape, no element further off than `atol`.

    `atol` is in units of the largest expected number, where that is above 1: rounding
    grows with the numbers.
    """
    finite = expected[expected.isfinite()]
    largest = finite.abs().max().item() if finite.numel() else 0.0
    return _tensors(got, expected, atol * max(1.0, largest))


def differ(got: Any, other: Any, atol: float = 1e-5) -> Outcome:
    """Tensors that are not the same: another shape, or an element beyond `atol`."""
    return Outcome(not _tensors(got, other, atol), f"no element differs by over {atol}")


def true(holds: Any, detail: str) -> Outcome:
    """A plain condition; `detail` says what was found, for when it does not hold."""
    return Outcome(bool(holds), detail)


def _tensors(got: Any, expected: Any, atol: float) -> Outcome:
    if tuple(got.shape) != tuple(expected.shape):
        shapes = f"{tuple(got.shape)}, expected {tuple(expected.shape)}"
        return Outcome(False, f"got shape {shapes}")
    if got.numel() == 0:
        return Outcome(True)
    same = got == expected  # infinities of one sign are equal, and differ by nan
    gap = (got.double() - expected.double()).abs().masked_fill(same, 0.0)
    gap = gap.nan_to_num(float("inf"))
    at = int(gap.argmax())
    index: list[int] = []
    for size in reversed(got.shape):
        index.insert(0, at % size)
        at //= size
    place = tuple(index)
    detail = (
        f"largest difference {gap[place].item():.3g} at {list(place)}: "
        f"got {got[place].item():.6g}, expected {expected[place].item():.6g}"
    )
    return Outcome(gap[place].item() <= atol, detail)
