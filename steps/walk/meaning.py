"""What a tensor holds, told from its axes and numbers and never from its name.

A `Meaning` looks at the tensors of a walk in their order and says of each:

    "weights"  between tokens: none below 0, and each row (or column) has the sum 1; and
               what a mask or dropout leaves of such weights
    "scores"   between tokens: any other numbers
    "mask"     between tokens: truth values, or nothing but 0 and 1
    ""         anything else
"""

import weakref
from typing import TYPE_CHECKING

from steps.pytorch import torch
from steps.walk.sheets import CLASS_AXES

if TYPE_CHECKING:
    from steps.walk.recorder import Entry

ROUNDING = 1e-4  # of a sum of float32 weights


class Meaning:
    """What each tensor of a walk holds; entries of a `Recorder(keep_calls=True)`."""

    def __init__(self) -> None:
        self._weights: dict[int, weakref.ref] = {}  # by id, while the tensor lives

    def of(self, entry: "Entry") -> str:
        """ "weights", "scores", "mask" or "", see above."""
        found = self._found(entry)
        if found == "weights":
            self._weights[id(entry.tensor)] = weakref.ref(entry.tensor)
        return found

    def _found(self, entry: "Entry") -> str:
        numbers = entry.numbers()
        if not between_tokens(entry) or not numbers.numel() or numbers.is_meta:
            return ""
        if numbers.dtype == torch.bool:
            return "mask"
        if not numbers.is_floating_point():
            return ""
        never_below = bool((numbers >= 0).all()) and bool(numbers.isfinite().all())
        if never_below and (sums_to_one(numbers, -1) or sums_to_one(numbers, -2)):
            return "weights"
        if never_below and any(
            self._known(t) and t.shape == numbers.shape for t in entry.inputs
        ):
            return "weights"
        return "mask" if bool(((numbers == 0) | (numbers == 1)).all()) else "scores"

    def _known(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is one that holds weights."""
        found = self._weights.get(id(tensor))
        return found is not None and found() is tensor


def between_tokens(entry: "Entry") -> bool:
    """Whether there is a number for every token and token, or one token and each."""
    axes = [CLASS_AXES.get(axis, axis).rstrip("?") for axis in entry.axes]
    return axes[-2:] == ["T", "T"] or axes == ["T"]


def sums_to_one(numbers: torch.Tensor, axis: int) -> bool:
    """Whether the numbers along an axis always have the sum 1."""
    if numbers.dim() < -axis:
        return False
    sums = numbers.sum(dim=axis)
    return bool(torch.allclose(sums, torch.ones_like(sums), atol=ROUNDING))
