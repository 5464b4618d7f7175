"""What the attention classes do not take, refused with one clear line."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from steps.pytorch import torch

Forward = Callable[[Any, torch.Tensor], torch.Tensor]


def takes(axes: str) -> Callable[[Forward], Forward]:
    """For a `forward`: it takes inputs of these axes, and is not begun with others.

    axes: such as "(b, num_tokens, d_in)". The last has the module's d_in; with a batch,
    num_tokens is at most the module's context_length.
    """
    rank = axes.count(",") + 1

    def checked(forward: Forward) -> Forward:
        @wraps(forward)
        def run(self: Any, x: torch.Tensor) -> torch.Tensor:
            shape = x.shape
            if len(shape) != rank:
                raise ValueError(f"the input must be {axes}, got shape {tuple(shape)}")
            if shape[-1] != self.d_in:
                raise ValueError(
                    f"the input must have d_in = {self.d_in} features, got {shape[-1]}"
                )
            if rank == 3 and shape[1] > self.context_length:
                raise ValueError(
                    f"the input has {shape[1]} tokens, more than "
                    f"context_length = {self.context_length}"
                )
            return forward(self, x)

        return run

    return checked


def check_sizes(**sizes: int) -> None:
    """Refuse sizes that no layer can have, before anything is drawn."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not hasattr(size, "__index__"):
            raise TypeError(f"{name} must be a whole number, got {size!r}")
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")


def check_dropout(dropout: float) -> None:
    """Refuse what is no probability."""
    if not 0 <= dropout <= 1:
        raise ValueError(f"dropout must be a probability from 0 to 1, got {dropout}")
