"""Inputs that are not (B, T, C): how a sequence of tokens becomes what forward takes.

Everywhere else in the debugger x is (B, T, C). A Form shows it to the module as a view
with other axes, and turns what comes back.
"""

import ast
import contextlib
import inspect
import math
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from steps.debugger.calls import ways_to_call
from steps.pytorch import nn, torch
from steps.walk.recorder import tensors_in

if TYPE_CHECKING:
    from steps.debugger.case import Case

CONVOLUTIONS = nn.Conv1d, nn.Conv2d, nn.Conv3d


def rows_of(T: int) -> int:
    """T tokens as an image: its height, the largest divisor up to the root of T."""
    return max(n for n in range(1, math.isqrt(T) + 1) if T % n == 0)


@dataclass(frozen=True)
class Form:
    """One arrangement of tokens; axes of x (B, T, C) as letters.

    axes: of what forward takes, such as "BCYX": Y and X are the rows and columns of an
    image, 3, H and D queries, keys and values (C) of H heads.
    """

    axes: str = "BTC"
    heads: int = 0  # of what is handed over as queries, keys and values

    @property
    def plain(self) -> bool:
        return self.axes == "BTC" and not self.heads

    @property
    def packed(self) -> bool:
        """Whether x holds queries, keys and values, already projected."""
        return self.heads > 0

    def split(self, x: torch.Tensor) -> tuple[list[str], list[int]]:
        """The axes that x (B, T, C) has here, in its own order, and their sizes."""
        T, C = x.shape[1:]
        Y, H = rows_of(T), self.heads or 1
        sizes = {"B": len(x), "T": T, "Y": Y, "X": T // Y, "C": C}
        sizes |= {"3": 3, "H": H, "D": C // (3 * H)}
        order = ["B", *(a for a in "TYX" if a in self.axes)]
        order += [a for a in self.axes if a in "3HDC"]
        return order, [sizes[a] for a in order]

    def given(self, x: torch.Tensor) -> torch.Tensor:
        """x (B, T, C) as forward takes it: a view of x if x was laid out for that."""
        if self.plain or x.dim() != 3:
            return x
        order, sizes = self.split(x)
        tokens = order.index(next(a for a in order if a in "TX"))
        x = x.unflatten(2, sizes[tokens + 1 :]).unflatten(1, sizes[1 : tokens + 1])
        return x.permute([order.index(a) for a in self.axes]).contiguous()

    def laid(self, x: torch.Tensor) -> torch.Tensor:
        """A copy of x (B, T, C) with its numbers in memory as forward takes them."""
        if self.plain or x.dim() != 3:
            return x.clone()
        return together(self.given(x).clone(), self.axes)

    def back(self, out: torch.Tensor) -> torch.Tensor:
        """What forward returns as (B, T, E)."""
        axes = self.axes.replace("3", "")
        if self.plain or out.dim() != len(axes):
            return out
        return together(out, axes)

    def rows(self, x: torch.Tensor) -> tuple[int, int] | None:
        """The rows and columns of the image that x is, or None."""
        rows = rows_of(x.shape[1]) if "Y" in self.axes else 0
        return (rows, x.shape[1] // rows) if rows else None

    def layouts(self) -> list[str]:
        """In which orders queries, keys and values of all heads may lie in x."""
        features = "".join(a for a in self.axes if a in "3HD")
        return [features] if features else ["3HD", "H3D"]


def together(value: torch.Tensor, axes: str) -> torch.Tensor:
    """A tensor of these axes as (B, T, C), a view: tokens and features each merged."""
    tokens = [a for a in axes if a in "TYX"]
    features = [a for a in axes if a in "3HDC"]
    order = ["B", *tokens, *features]
    moved = value.permute([axes.index(a) for a in order])
    return moved.flatten(len(tokens) + 1).flatten(1, len(tokens))


PLAIN = Form()


def forms(module: nn.Module, H: int) -> Iterator[Form]:
    """The arrangements that a module may take, those that it shows first."""
    named = axes_named(module)
    flat = any(isinstance(m, nn.Conv2d) for m in module.modules()) or named == 4
    if flat:
        yield from (Form("BCYX"), Form("BYXC"))
    if any(isinstance(m, nn.Conv1d) for m in module.modules()) or named == 3:
        yield Form("BCT")
    if not any(p.dim() > 1 for p in module.parameters()):
        counts = (v for m in module.modules() for v in vars(m).values())
        told = [n for n in counts if type(n) is int and 1 < n <= 64]
        H = told[0] if told else H
        yield from (Form("BT3HD", H), Form("BTC", H), Form("BCT", H), Form("BTH3D", H))


def axes_named(module: nn.Module) -> int:
    """Into how many names forward unpacks the shape of its first argument, or 0."""
    try:
        source = textwrap.dedent(inspect.getsource(type(module).forward))
        function = ast.parse(source).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return 0
    if not isinstance(function, ast.FunctionDef) or len(function.args.args) < 2:
        return 0
    first = function.args.args[1].arg
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            told = ast.unparse(node.value)
            if told in (f"{first}.shape", f"{first}.size()"):
                return len(node.targets[0].elts)
    return 0


def arranged(case: "Case") -> "Case":
    """The case with x in the arrangement that its forward takes.

    Another than (B, T, C) only where that raises and the other does not; or where none
    runs and the module shows convolutions over images.
    """
    if case.asked_call is not None or case.x.dim() != 3 or runs(case, PLAIN):
        return case
    first: Case | None = None
    for form in forms(case.module, case.sizes.H):
        for made in at_widths(case, form):
            if runs(made, form):
                return made
            first = first or made
    shown = first is not None and first.form.axes == "BCYX"
    return first if first is not None and shown else case


def at_widths(case: "Case", form: Form) -> Iterator["Case"]:
    """The case in a form, at each width that its layers may want."""
    widths = [case.sizes.d_in]
    if form.packed:
        widths = [3 * form.heads * case.sizes.D]
    widths += [
        m.in_channels for m in case.module.modules() if isinstance(m, CONVOLUTIONS)
    ]
    for width in dict.fromkeys(widths):
        sizes = replace(
            case.sizes, d_in=width, T=15 if "Y" in form.axes else case.sizes.T
        )
        generator = torch.Generator().manual_seed(11)
        shape = sizes.B, sizes.T, width
        x = torch.randn(shape, generator=generator, dtype=torch.float64)
        yield replace(case, sizes=sizes, x=form.laid(x), form=form)


def runs(case: "Case", form: Form) -> bool:
    """Whether some way to call forward with x in this form raises nothing."""
    for way in ways_to_call(case.module, case.x, case.sizes.D, False):
        x = form.laid(case.x)
        args, kwargs = replaced(*way.arguments(case.module, x), x, form.given(x))
        with torch.no_grad(), contextlib.suppress(Exception):
            out = next(tensors_in(case.module(*args, **kwargs)), None)
            return out is not None
    return False


def replaced(
    args: tuple, kwargs: dict[str, Any], old: torch.Tensor, new: torch.Tensor
) -> tuple[tuple, dict[str, Any]]:
    """Arguments with another tensor in the place of one."""
    args = tuple(new if value is old else value for value in args)
    return args, {k: new if value is old else value for k, value in kwargs.items()}
