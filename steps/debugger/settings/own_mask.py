"""A class with a causal mask of its own, called without the mask that it also takes."""

from steps.debugger.arguments import plain
from steps.debugger.calls import SWITCHES, parameters_of
from steps.debugger.case import Case
from steps.debugger.result import Diagnosis
from steps.debugger.run import state_of
from steps.debugger.settings.context import without_mask
from steps.debugger.settings.padding import added_by
from steps.debugger.settings.runs import off, output_of, reads
from steps.pytorch import nn, torch

FAR = 1e-6  # of the largest number


def own_mask(case: Case) -> Diagnosis | str | None:
    """An optional mask, left out: what is made causal must be causal all the same."""
    if case.mask is None or case.x.dim() != 3:
        return None
    name = case.mask.name
    p = next(p for p in parameters_of(case.module) if p.name == name)
    tables = {
        path: table
        for path, table in triangles(case).items()
        if any(reads(node, table) for node in case.run.nodes)
    }
    why = " and ".join([*tables, *switched_on(case.module)])
    if p.default is not None or not why:
        return None
    bare = without_mask(case)
    other = case.x.clone()
    other[:, -1] += 1.0
    one, two = output_of(bare, case.x), output_of(bare, other)
    if one is None or two is None or one.shape != two.shape:
        return None
    gap = off(two[:, :-1], one[:, :-1])
    if gap <= FAR:
        return f"{name}=None, and causal all the same"
    added = added_by(case.run, bare.record())
    reading = [
        node for node in added if any(reads(node, table) for table in tables.values())
    ]
    return case.file.fault(
        next(iter(reading or added), None),
        "mask",
        f"It is made causal ({why}), and without {name}=..., which is optional, it is "
        f"not: an earlier output moves by {gap:.2g} (of the largest number) when the "
        "last token changes.",
        f"a causal mask only where {name} is given",
    )


def triangles(case: Case) -> dict[str, torch.Tensor]:
    """The tables that the module keeps and that hide a triangle, by path."""
    found = {}
    for path, table in state_of(case.module).items():
        square = table.dim() >= 2 and table.shape[-1] == table.shape[-2] >= case.T
        if square and not isinstance(table, nn.Parameter) and is_triangle(table):
            found[path] = table
    return found


def is_triangle(table: torch.Tensor) -> bool:
    """Whether what is above the diagonal is all one value, and below it all another."""
    flat = table.reshape(-1, *table.shape[-2:])[0]
    upper = torch.ones(flat.shape, dtype=torch.bool).triu(1)
    above, below = flat[upper], flat[~upper]
    one_each = bool((above == above[0]).all()) and bool((below == below[0]).all())
    return one_each and bool(above[0] != below[0])


def switched_on(module: nn.Module) -> list[str]:
    """The attributes such as causal that are True."""
    return [
        f"{name}=True"
        for part in module.modules()
        for name, value in vars(part).items()
        if value is True and plain(name) in SWITCHES
    ]
