"""Another device: what stays on the CPU when the module and x are moved.

The meta device stands for it; it has shapes and no numbers, and refuses to mix.
"""

import inspect
import re
from typing import Any

from steps.debugger.case import Case
from steps.debugger.load import first_line
from steps.debugger.run import Node, state_of
from steps.debugger.settings.runs import reads
from steps.pytorch import nn, torch


def other_device(case: Case) -> str | None:
    """A risk where a tensor that forward reads is not moved, or made on the CPU."""
    module = case.copied()
    try:
        module.to("meta")
    except Exception:
        return None
    left = kept_behind(case, module)
    if left is not None:
        return None
    for entry, tensor in case.run.mixed[:1]:
        error = on_meta(case, module)
        if error is None or "device" not in str(error):
            return None
        place, maker = entry.place, case.run.node_of(tensor)
        while maker is not None:
            place = maker.entry.place
            maker = next((m for _, m in maker.constants if m is not None), None)
        case.risk(
            place,
            "device",
            "device",
            "It makes a tensor on the CPU whatever device the input is on; on another "
            f"the next use of it, at line {entry.place.line}, raises: "
            f"{first_line(error)}. Right: device=x.device, or a buffer.",
        )
        return None
    return "another device" if on_meta(case, module) is None else None


def on_meta(case: Case, module: nn.Module) -> BaseException | None:
    """What forward raises where all that it is given is on the meta device."""
    args, kwargs = case.how(module, case.x)
    try:
        with torch.no_grad():
            module(*moved(args), **moved(kwargs))
    except Exception as error:
        return error
    return None


def moved(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to("meta")
    if isinstance(value, dict):
        return {name: moved(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(moved(part) for part in value)
    return value


def kept_behind(case: Case, module: nn.Module) -> str | None:
    """A tensor that is no buffer, stays behind and is read; its risk is noted."""
    known = {id(t) for t in (*case.module.parameters(), *case.module.buffers())}
    there = state_of(module)
    for path, tensor in state_of(case.module).items():
        weight = isinstance(tensor, nn.Parameter) or path in case.weights
        if id(tensor) in known or tensor.dim() == 0 or weight:
            continue
        node = first_reader(case, tensor)
        if node is None or path not in there or there[path].is_meta:
            continue
        if node.entry.function in ("to", "type_as", "cuda"):
            continue  # forward moves it
        place = case.made_at(path) or node.entry.place
        if takes_device(case) and re.search(r"\bdevice\b", case.file.statement(place)):
            continue  # made on the device that the constructor was told
        name = path.rpartition(".")[2]
        case.risk(
            place,
            "device",
            "device",
            f"{path!r} is an ordinary attribute, not a buffer: moved to another "
            f"device, the module leaves it behind, and line {node.line} reads it. "
            f'Right: self.register_buffer("{name}", ...).',
        )
        return path
    return None


def takes_device(case: Case) -> bool:
    """Whether the constructor is told the device."""
    try:
        return "device" in inspect.signature(type(case.module)).parameters
    except (TypeError, ValueError):
        return False


def first_reader(case: Case, tensor: torch.Tensor) -> Node | None:
    """The first operation that reads a tensor (or a view of it)."""
    return next((node for node in case.run.nodes if reads(node, tensor)), None)
