"""PyTorch, imported in one place: quietly, and with one clear line where it is missing.

A bare torch install warns that NumPy is missing; nothing here uses NumPy, so that one
warning is dropped, and only while torch, or a part of it, is imported.
"""

import copy
import gc
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from steps.errors import ROOT, complain, not_installed

LEAST_MEMORY = 600 * 2**20  # bytes of addresses that the CPU build takes, at least


@contextmanager
def without_numpy() -> Iterator[None]:
    """Drop the remark that NumPy is missing: parts of torch make it when imported."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
        yield


@contextmanager
def somewhere() -> Iterator[None]:
    """Stand in a folder that exists: torch's arithmetic cannot be loaded from one that
    has been removed."""
    try:
        os.getcwd()
    except OSError:
        removed = os.open(".", os.O_RDONLY)
        os.chdir(ROOT)
        yield
        torch.ones(2, 2) @ torch.ones(2, 2)  # the last part is loaded when first used
        os.fchdir(removed)
        os.close(removed)
    else:
        yield


def check_room() -> None:
    """Refuse at once where torch's libraries would be ended by a lack of memory."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    if 0 <= allowed < LEAST_MEMORY:
        raise MemoryError


collecting = gc.isenabled()
gc.disable()  # an import makes next to no garbage, and looking for it takes long
try:
    check_room()
    with without_numpy(), somewhere():
        import torch
        from torch import nn
except (ImportError, OSError) as error:
    complain(str(not_installed("torch", error)))
    raise SystemExit(2) from None
except MemoryError:
    complain(
        f"not enough memory to load torch, which takes {LEAST_MEMORY >> 20} MB and "
        "more (ulimit -v); steps 1 and 2 need none of it"
    )
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
    "published",
    "seeded",
    "torch",
    "undrawn",
    "without_numpy",
]

PUBLISHED_TORCH = "2.13.0"  # the release that the printed numbers come from


@contextmanager
def published() -> Iterator[None]:
    """Compute inside as the published numbers were: float32, on the CPU, in full
    precision. What the caller had set is back afterwards."""
    matmul: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    with ExitStack() as undo:
        undo.callback(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float32)
        if torch.get_default_device().type != "cpu":
            undo.enter_context(torch.device("cpu"))
        if matmul.fp32_precision not in (
            "none",
            "ieee",
        ):  # set_float32_matmul_precision
            undo.callback(setattr, matmul, "fp32_precision", matmul.fp32_precision)
            matmul.fp32_precision = "ieee"
        undo.enter_context(torch.autocast("cpu", enabled=False))
        undo.enter_context(torch.inference_mode(False))
        undo.enter_context(torch.enable_grad())
        yield


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
