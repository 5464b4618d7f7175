"""A width that the heads do not divide."""

import ast
from dataclasses import dataclass

from steps.debugger.arguments import Sizes
from steps.debugger.build import make_lazy
from steps.debugger.case import Case
from steps.debugger.load import first_line
from steps.debugger.run import Run
from steps.errors import UserError
from steps.pytorch import nn, torch
from steps.walk.source import Place


@dataclass
class Odd(Sizes):
    """A width that the heads do not divide."""

    @property
    def d_out(self) -> int:
        return self.H * self.D + 1


def width_not_divisible(case: Case) -> str | None:
    """A width that the heads do not divide: refused, or wrong in silence."""
    built, judgement = case.built, case.judgement
    if built is None or built.again is None or judgement is None:
        return None
    if {"D", "H"} & case.told != {"H"} or case.told.isdisjoint({"d_out", "width"}):
        return None
    if judgement.heads.H < 2 or case.sizes.d_out <= judgement.heads.D:
        return None  # the width is one head's
    odd = Odd(**vars(case.sizes))
    if case.sizes.d_in == case.sizes.d_out:
        odd.d_in = odd.d_out
    try:
        module = built.again(odd)
    except Exception:
        return "a width that the heads do not divide, which is refused"
    x = torch.randn(case.sizes.B, case.sizes.T, odd.d_in, dtype=torch.float64)
    try:
        make_lazy(module, x, odd.D)
    except UserError:
        return None  # its layers get their sizes in forward, which refuses this one
    module.double()
    module.eval()
    odd_width(case, odd, case.record(x, module), module)
    return None


def odd_width(case: Case, odd: Odd, run: Run, module: nn.Module) -> None:
    """Note what a module made of such a width does with it."""
    width, quotient = odd.d_out, odd.d_out // odd.H
    said = f"d_out = {width} with {odd.H} heads is"
    place, setting = floored(case, module, quotient)
    where = run.place.line if run.place is not None else None
    hidden = run.failed is not None and hides_width(run.failed[2], width)
    own = "d_out" in case.told  # one width for all is often left to the caller
    at = place or (run.nodes[0].entry.place if run.nodes else None)
    right = "Right: assert d_out % num_heads == 0, in the constructor."
    wide = run.output.shape[-1] if run.output is not None else None
    if own and run.error is not None and place is not None and hidden:
        case.risk(
            place,
            "constructor",
            "indivisible",
            f"{said} accepted, {setting} is rounded down to {quotient}, and only "
            f"forward fails, at line {where}, with an error that shows neither: "
            f"{first_line(run.error)}. {right}",
        )
    elif run.error is not None:
        case.notes.append(
            f"{said} refused only in forward, at line {where}; "
            "an assert in the constructor would say it sooner."
        )
    elif case.built is not None and "config=..." in case.built.how:
        case.notes.append(
            f"With a made-up config, a width of {width} and {odd.H} heads is accepted."
        )
    elif place is not None and wide == width and not own:
        case.notes.append(
            f"{said} accepted, and {setting} is rounded down to {quotient}; the output "
            "is as wide as asked."
        )
    else:
        case.risk(
            at,
            "constructor",
            "indivisible",
            f"{said} accepted in silence: {setting} is rounded down to {quotient}, and "
            f"the output is {wide} wide. {right}",
        )


def floored(case: Case, module: nn.Module, quotient: int) -> tuple[Place | None, str]:
    """The attribute that keeps the width divided and rounded down."""
    for owner in module.modules():
        for name, value in vars(owner).items():
            if type(value) is int and value == quotient:
                place = case.file.constructor(owner, name)
                if place is not None:
                    return place, name
    places = case.file.inside(module, "__init__", divides)
    return next(iter(places), None), "a quotient"


def divides(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv)


def hides_width(args: tuple, width: int) -> bool:
    """Whether the call that failed shows neither the width nor a head's part of it.

    Numbers packed three wide, reshaped to sizes that are all given: the reader sees
    only that two products differ. A -1, or d_out as the last axis, gives it away.
    """
    tensor = next((t for t in args if isinstance(t, torch.Tensor)), None)
    sizes = [s for a in args[1:] for s in (a if isinstance(a, tuple | list) else (a,))]
    return tensor is not None and tensor.shape[-1] == 3 * width and -1 not in sizes
