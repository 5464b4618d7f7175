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


def opened(result: Any, x: torch.Tensor) -> Any:
    """What forward returns, its first tensor the one that is shaped like x.

    x: as forward was given it. Dataclasses, other objects and generators are looked
    into; a result whose first tensor is that one, or that has none, stays as it is.
    """
    if isinstance(result, Iterator):
        result = tuple(result)
    kind = type(result)
    plainly_held = isinstance(result, torch.Tensor | tuple | list | dict | None)
    if not plainly_held and hasattr(result, "__dict__") and kind is not type:
        result = vars(result)
    made = list(tensors_in(result))
    if isinstance(result, torch.Tensor) or not made:
        return result
    alike = [t for t in made if t.shape == x.shape]
    alike += [
        t
        for t in made
        if t.dim() == x.dim() > 1
        and t.shape[:-1] == x.shape[:-1]
        and t.shape[-1] != x.shape[-2]
    ]
    if (alike or made)[0] is made[0]:
        return result
    return (alike[0], *(t for t in made if t is not alike[0]))


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
    other = shorter(case) or of_one_length(case)
    if other is not None:
        return other
    first: Case | None = None
    for form in forms(case.module, case.sizes.H):
        for made in at_widths(case, form):
            if runs(made, form):
                return made
            first = first or made
    flat = [m for m in case.module.modules() if isinstance(m, nn.Conv2d)]
    each = bool(flat) and all(m.kernel_size == (1, 1) for m in flat)  # pixel by itself
    return first if first is not None and each else case


def shorter(case: "Case") -> "Case | None":
    """The case with fewer tokens, where a number in the class itself allows no more.

    None where fewer tokens do not help, or where how many depends on what the
    constructor is asked for.
    """
    built, sizes = case.built, case.sizes
    if built is None or built.again is None or "context" in built.named.values():
        return None
    most = longest(case, case.module)
    for other in (replace(sizes, H=5, D=8), replace(sizes, D=12)):
        with contextlib.suppress(Exception):
            module = built.again(other).eval().double()
            if longest(replace(case, sizes=other), module) not in (most, 0):
                return None
    taken = {sizes.B, sizes.H, sizes.D, sizes.KV}
    T = next((t for t in range(most, 1, -1) if t not in taken), 0)
    if not T:
        return None
    new = replace(sizes, T=T, context=most)
    note = f"It takes {most} tokens at most, by a number in the class itself."
    x = case.x[:, :T].clone()
    return replace(case, sizes=new, x=x, notes=[*case.notes, note])


def of_one_length(case: "Case") -> "Case | None":
    """The case with as many tokens as a number in the class, or its square, asks for.

    A window of 3 takes 3 * 3 tokens. None where no such number is the class's own.
    """
    built, sizes = case.built, case.sizes
    if built is None or built.again is None or "context" in built.named.values():
        return None
    own = [v for m in case.module.modules() for v in vars(m).values()]
    own += [n for v in own if isinstance(v, tuple | list) for n in v]
    asked = {sizes.B, sizes.H, sizes.D, sizes.KV, sizes.d_in, sizes.d_out}
    numbers = sorted({n for n in own if type(n) is int and 1 < n <= 64})
    lengths = [n * n for n in numbers if n <= 8] + numbers
    for T in dict.fromkeys(lengths):
        if T in asked or T == case.T:
            continue
        made = with_length(case, T)
        if runs(made, PLAIN):
            note = f"It takes {T} tokens and no other number of them."
            return replace(made, one_length=True, notes=[*case.notes, note])
    return None


def with_length(case: "Case", T: int) -> "Case":
    """The case with an x of T tokens."""
    generator = torch.Generator().manual_seed(11)
    shape = case.sizes.B, T, case.sizes.d_in
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    return replace(case, sizes=replace(case.sizes, T=T), x=x)


def longest(case: "Case", module: nn.Module) -> int:
    """The most tokens, fewer than x has, with which a module runs; 0 for none."""
    for T in range(case.T - 1, 1, -1):
        x = torch.ones(case.x.shape[0], T, case.sizes.d_in, dtype=torch.float64)
        if runs(replace(case, module=module, x=x), PLAIN):
            return T
    return 0


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
    """Whether some way to call forward with x in this form raises nothing, and, of a
    form that is not plain, has a result for each token."""
    for way in ways_to_call(case.module, case.x, case.sizes.D, False):
        x = form.laid(case.x)
        args, kwargs = replaced(*way.arguments(case.module, x), x, form.given(x))
        with torch.no_grad(), contextlib.suppress(Exception):
            made = opened(case.module(*args, **kwargs), form.given(x))
            out = next(tensors_in(made), None)
            whole = out is not None and form.back(out).shape[:2] == x.shape[:2]
            if whole or (form.plain and out is not None):
                return True
    return False


def replaced(
    args: tuple, kwargs: dict[str, Any], old: torch.Tensor, new: torch.Tensor
) -> tuple[tuple, dict[str, Any]]:
    """Arguments with another tensor in the place of one."""
    args = tuple(new if value is old else value for value in args)
    return args, {k: new if value is old else value for k, value in kwargs.items()}
