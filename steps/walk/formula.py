"""How one number of a result is worked out from numbers of its sources.

The name of a torch call proposes a formula. It is kept only if, worked out in float64
on the recorded numbers of the sources, it gives every recorded number of the result.
A formula is a small dict, ready for JSON:

    {"op": "dot", "of": [source, source], "map": [axes, axes]}
        the sum of products along the axis that both sources have and the result has not
    {"op": "sum" or "mean", "of": [source], "map": [axes]}      along one axis
    {"op": "softmax", "of": [source], "axis": k}                along result axis k
    {"op": "add", "sub", "mul" or "div", "of": [source, source], "map": [axes, axes]}
    {"op": the same, "of": [source], "map": [axes], "by": number}
    {"op": "drop", "of": [source], "map": [axes], "by": p}      0, or source / (1 - p)
    {"op": "fill", "of": [source, mask], "map": [axes, axes], "by": number}
    {"op": "exp", "of": [source], "map": [axes]}

"map" has for every axis of a source the axis of the result with the same index; SUMMED
for the axis that is summed over, and ONLY for an axis of size 1 that is broadcast.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from steps.pytorch import torch
from steps.walk.recorder import Entry

SUMMED, ONLY = -1, -2
LARGEST = 200_000  # elements; formulas of larger results are not worked out
BINARY: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "truediv": torch.div,
    "true_divide": torch.div,
}
PRODUCTS = ("matmul", "mm", "bmm", "linear")

Formula = dict[str, Any]


def formula(entry: Entry, numbers: Mapping[int, int]) -> Formula | None:
    """The formula of a result; None where none is known, or none that proves true.

    entry: of a `Recorder(keep_calls=True)`. numbers: by the id of each source tensor
    that is in the record, the number to use for it.
    """
    if entry.call is None or entry.tensor.numel() > LARGEST or not entry.tensor.numel():
        return None
    name = entry.function.strip("_")
    maker = MAKERS.get(name)
    if maker is None:
        return None
    with torch._C.DisableTorchFunction(), torch.no_grad():
        made = maker(name, entry)
        if made is None:
            return None
        found, sources = made
        if any(id(tensor) not in numbers for tensor in sources):
            return None
        found["of"] = [numbers[id(tensor)] for tensor in sources]
        return found if proves_true(found, sources, entry) else None


Made = tuple[Formula, list[torch.Tensor]] | None


def product_of(name: str, entry: Entry) -> Made:
    """x @ y and linear layers without a bias."""
    assert entry.call is not None
    _, args, kwargs = entry.call
    given = [*args, *kwargs.values()]
    if len(given) < 2 or any(part is not None for part in given[2:]):
        return None
    left, right = given[0], given[1]
    rank = entry.tensor.dim()
    if name == "linear":
        maps = [[*range(rank - 1), SUMMED], [rank - 1, SUMMED]]
        return {"op": "dot", "map": maps}, [left, right]
    own = rank - (left.dim() > 1) - (right.dim() > 1)  # axes before the matrices
    first = [SUMMED] if left.dim() == 1 else [own, SUMMED]
    second = [SUMMED] if right.dim() == 1 else [SUMMED, rank - 1]
    left_map = [*before(left, entry.tensor, own), *first]
    right_map = [*before(right, entry.tensor, own), *second]
    return {"op": "dot", "map": [left_map, right_map]}, [left, right]


def before(tensor: torch.Tensor, result: torch.Tensor, own: int) -> list[int]:
    """Where the axes before a matrix lie in the result, counted from the right."""
    count = max(tensor.dim() - 2, 0)
    axes = range(own - count, own)
    return [ONLY if tensor.shape[k] == 1 else axis for k, axis in enumerate(axes)]


def spread_over(tensor: torch.Tensor, result: torch.Tensor) -> list[int]:
    """The map of a tensor that is broadcast to the result."""
    skipped = result.dim() - tensor.dim()
    return [
        ONLY if size == 1 else skipped + axis for axis, size in enumerate(tensor.shape)
    ]


def of_two(name: str, entry: Entry) -> Made:
    """x + y and the like; y may be a plain number."""
    assert entry.call is not None
    _, args, kwargs = entry.call
    if kwargs or len(args) != 2:
        return None
    op = "div" if name in ("truediv", "true_divide") else name
    tensors = [part for part in args if isinstance(part, torch.Tensor)]
    maps = [spread_over(tensor, entry.tensor) for tensor in tensors]
    if len(tensors) == 2:
        return {"op": op, "map": maps}, tensors
    if not isinstance(args[0], torch.Tensor) or not isinstance(args[1], int | float):
        return None
    return {"op": op, "map": maps, "by": float(args[1])}, tensors


def along(name: str, entry: Entry) -> Made:
    """sum and mean along one axis, softmax."""
    assert entry.call is not None
    _, args, kwargs = entry.call
    source = args[0] if args else None
    dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
    if not isinstance(source, torch.Tensor):
        return None
    if dim is None and source.dim() == 1 and name != "softmax":
        dim = 0
    if not isinstance(dim, int):
        return None
    dim %= source.dim()
    if name == "softmax":
        return {"op": "softmax", "axis": dim}, [source]
    kept = entry.tensor.dim() == source.dim()
    axes = [
        SUMMED if k == dim else k - (k > dim and not kept) for k in range(source.dim())
    ]
    return {"op": name, "map": [axes]}, [source]


def of_one(name: str, entry: Entry) -> Made:
    """exp, and dropout of a source."""
    assert entry.call is not None
    _, args, kwargs = entry.call
    if not args or not isinstance(args[0], torch.Tensor):
        return None
    made: Formula = {"op": name, "map": [spread_over(args[0], entry.tensor)]}
    if name == "dropout":
        p = kwargs.get("p", args[1] if len(args) > 1 else None)
        if not isinstance(p, float | int):
            return None
        made |= {"op": "drop", "by": float(p)}
    return made, [args[0]]


def filled(name: str, entry: Entry) -> Made:
    """masked_fill with a plain number."""
    assert entry.call is not None
    _, args, kwargs = entry.call
    if kwargs or len(args) != 3 or not isinstance(args[2], int | float):
        return None
    maps = [spread_over(tensor, entry.tensor) for tensor in args[:2]]
    by = float(args[2])
    told = by if abs(by) != float("inf") else str(by)
    return {"op": "fill", "map": maps, "by": told}, list(args[:2])


MAKERS: dict[str, Callable[[str, Entry], Made]] = {
    **dict.fromkeys(PRODUCTS, product_of),
    **dict.fromkeys(BINARY, of_two),
    **dict.fromkeys(("sum", "mean", "softmax"), along),
    **dict.fromkeys(("exp", "dropout"), of_one),
    "masked_fill": filled,
}


def proves_true(found: Formula, sources: Sequence[torch.Tensor], entry: Entry) -> bool:
    """Whether the formula, worked out in float64, gives the recorded numbers."""
    recorded = entry.numbers()
    if not recorded.is_floating_point():
        return False
    try:
        worked_out = work_out(found, sources, recorded)
    except (RuntimeError, IndexError):
        return False
    return worked_out.shape == recorded.shape and torch.allclose(
        worked_out, recorded.double(), rtol=1e-4, atol=1e-5, equal_nan=True
    )


def work_out(
    found: Formula, sources: Sequence[torch.Tensor], recorded: torch.Tensor
) -> torch.Tensor:
    """The result of a formula, from its maps alone."""
    op, rank = found["op"], recorded.dim()
    wide = [tensor.detach().double() for tensor in sources]
    if op == "softmax":
        return torch.softmax(wide[0], dim=found["axis"])
    laid = [
        laid_along(tensor, axes, rank)
        for tensor, axes in zip(wide, found["map"], strict=True)
    ]
    if op in ("dot", "sum", "mean"):
        terms = laid[0] * laid[1] if op == "dot" else laid[0]
        total = terms.mean(dim=-1) if op == "mean" else terms.sum(dim=-1)
        return total.expand(recorded.shape)
    laid = [tensor.squeeze(-1) for tensor in laid]
    if op == "exp":
        return laid[0].exp()
    if op == "drop":
        kept = recorded != 0
        whole = laid[0] / (1 - found["by"])
        near = torch.isclose(recorded.double(), whole, rtol=1e-4, atol=1e-6)
        return torch.where(kept | near, whole, 0.0)
    if op == "fill":
        return torch.where(laid[1] != 0, float(found["by"]), laid[0])
    other = laid[1] if len(laid) > 1 else found["by"]
    return BINARY[op](laid[0], other)


def laid_along(tensor: torch.Tensor, axes: Sequence[int], rank: int) -> torch.Tensor:
    """A source with its axes where the result has them, the summed axis last."""
    order = sorted(range(tensor.dim()), key=lambda k: (axes[k] == SUMMED, axes[k]))
    moved = tensor.permute(order)
    shape = [1] * (rank + 1)
    for k in order:
        if axes[k] != ONLY:
            shape[rank if axes[k] == SUMMED else axes[k]] = tensor.shape[k]
    return moved.reshape(shape)
