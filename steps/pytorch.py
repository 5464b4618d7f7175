"""PyTorch, imported in one place: quietly, and with one clear line where it is missing.

A bare torch install warns that NumPy is missing; nothing here uses NumPy, so that one
warning is dropped, and only while torch, or a part of it, is imported.
"""

import copy
import gc
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def without_numpy() -> Iterator[None]:
    """Drop the remark that NumPy is missing: parts of torch make it when imported."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
        yield


collecting = gc.isenabled()
gc.disable()  # an import makes next to no garbage, and looking for it takes long
try:
    with without_numpy():
        import torch
        from torch import nn
except ModuleNotFoundError as missing:
    if missing.name != "torch":
        raise
    print("torch is not installed: pip install -r requirements.txt", file=sys.stderr)
    raise SystemExit(2) from None
except KeyboardInterrupt:  # long before anything that could say more has started
    raise SystemExit(130) from None
finally:
    if collecting:
        gc.enable()

__all__ = [
    "PUBLISHED_TORCH",
    "loaded",
    "nn",
    "seeded",
    "torch",
    "undrawn",
    "without_numpy",
]

PUBLISHED_TORCH = "2.13.0"  # the release that the printed numbers come from


@contextmanager
def seeded(seed: int, after: Iterable[nn.Module] = ()) -> Iterator[None]:
    """Draw random numbers inside as from `seed`; the caller's state is left as found.

    after: layers of the same family that were drawn first. As many numbers are drawn
    and thrown away, so that a layer made in a later step gets the numbers it would get
    in a constructor that makes them all, one after the other.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        for layer in after:
            copy.deepcopy(layer).reset_parameters()  # type: ignore[operator]
        yield


def loaded(module: nn.Module, weights: Mapping[str, torch.Tensor]) -> nn.Module:
    """The module, its own weights replaced by copies of these, by `state_dict` name."""
    module.load_state_dict({**module.state_dict(), **weights})
    return module


class undrawn(torch.overrides.TorchFunctionMode):
    """Make layers inside without drawing their weights, for those that are replaced
    or only counted: at GPT-2's size drawing takes longer than using them."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        drawing = func in (torch.Tensor.uniform_, torch.Tensor.normal_)
        if drawing or getattr(func, "__module__", "") == nn.init.__name__:
            return args[0] if args else (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))
