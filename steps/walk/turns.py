"""A wrong turn's result beside the right one: how much of it holds other numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from steps.pytorch import torch


@dataclass(frozen=True)
class Against:
    """Two tensors, row by row; a row is what the last axis holds."""

    wrong: str
    right: str
    wrong_numbers: torch.Tensor
    right_numbers: torch.Tensor
    rows: int
    differ: int  # rows that hold other numbers; 0 too where the shapes are not the same
    at: tuple[int, ...]  # the row to look at: the followed token's, if that differs

    @property
    def same_shape(self) -> bool:
        return self.wrong_numbers.shape == self.right_numbers.shape


def against(
    wrong: str,
    wrong_numbers: torch.Tensor,
    right: str,
    right_numbers: torch.Tensor,
    axes: Sequence[str],
    known: Mapping[str, Any],
) -> Against:
    """Hold one against the other.

    axes: those of the right one; the row to look at is that of the followed token.
    """
    both = wrong_numbers.detach(), right_numbers.detach()
    rows = right_numbers.shape[:-1].numel()
    if both[0].shape != both[1].shape:
        return Against(wrong, right, *both, rows, 0, ())
    near = torch.isclose(
        both[0].double(), both[1].double(), rtol=1e-5, atol=1e-6, equal_nan=True
    )
    other = ~near.all(dim=-1)
    places = [tuple(place) for place in other.nonzero().tolist()]
    tokens = axes.index("T") if "T" in axes[:-1] else None
    followed = places
    if tokens is not None:
        followed = [place for place in places if place[tokens] == known["follow"]]
    at = (followed or places or [(0,) * (right_numbers.dim() - 1)])[0]
    return Against(wrong, right, *both, rows, int(other.sum()), at)
