"""What the settings share: runs compared with one another, operation by operation."""

from steps.debugger.case import Case, plainly
from steps.debugger.run import Node, Run
from steps.pytorch import torch
from steps.walk.recorder import storage

NEAR = 1e-6  # of the largest output


def same(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Equal, NaN where the other is NaN."""
    return one.shape == two.shape and bool(
        ((one == two) | ((one != one) & (two != two))).all()
    )


def off(one: torch.Tensor, two: torch.Tensor) -> float:
    """How far apart, as a part of the largest number of `two`; inf for other shapes."""
    if one.shape != two.shape:
        return float("inf")
    if not one.numel():
        return 0.0
    gap = float((one.double() - two.double()).abs().max())
    return float("inf") if gap != gap else gap / (float(two.abs().max()) or 1.0)


def output_of(case: Case, x: torch.Tensor) -> torch.Tensor | None:
    """The first tensor that forward gives; None where it raises."""
    return plainly(case, x)[0]


def first_mask(case: Case) -> Node | None:
    """The first operation that holds what a mask has made."""
    for node, label in case.labels.items():
        if "masked" in label.stage.name or label.stage.name in ("weights", "contexts"):
            return node
    return None


def pairs_of(run: Run, other: Run) -> list[tuple[Node, Node]]:
    """The operations on x of two runs that went the same way; else none."""
    if [n.entry.place for n in run.nodes] != [n.entry.place for n in other.nodes]:
        return []
    both = zip(run.nodes, other.nodes, strict=True)
    return [(one, two) for one, two in both if one.uses_x]


def reads(node: Node, tensor: torch.Tensor) -> bool:
    """Whether an operation was given a tensor, or a view of it."""
    return any(storage(t) == storage(tensor) for t in node.entry.inputs)
