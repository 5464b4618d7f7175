"""A block around attention: how it is run, and what other inputs show of it."""

import contextlib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from steps.debugger.arguments import Sizes, plain
from steps.debugger.build import Built
from steps.debugger.calls import is_mask, ways_to_call
from steps.debugger.file import File
from steps.debugger.inputs import replaced
from steps.debugger.residual import Found
from steps.debugger.watch import Part, Watched, copied, watch, with_result
from steps.pytorch import nn, torch
from steps.walk.recorder import tensors_in

OTHER = -1.7  # times a token: another one, also after a norm
NORMS = (nn.LayerNorm, nn.GroupNorm, nn.modules.batchnorm._BatchNorm)


@dataclass
class Block:
    """A module that holds the attention, made and ready to run."""

    module: nn.Module
    built: Built
    file: File
    inner: type  # the attention class
    outer: list[nn.Module]  # it, and what in it holds the attention as well
    unjudged: str = ""  # why its sums are not judged
    ids: int = 0  # of a model that takes token numbers: how many there are

    @property
    def name(self) -> str:
        return type(self.module).__name__

    @property
    def sizes(self) -> Sizes:
        return self.built.sizes

    def x(self) -> torch.Tensor:
        """Its input: vectors (B, T, d_in), or token numbers (B, T)."""
        generator = torch.Generator().manual_seed(11)
        B, T = self.sizes.B, self.sizes.T
        if self.ids:
            return torch.randint(0, self.ids, (B, T), generator=generator)
        shape = B, T, self.sizes.d_in
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    def given(self, x: torch.Tensor) -> tuple[tuple, dict[str, Any], bool]:
        """What forward is given: (args, kwargs, whether some of it was made up)."""
        like = x if x.is_floating_point() else x[..., None].double()
        way = next(ways_to_call(self.module, like, self.sizes.D, False))
        args, kwargs = way.arguments(self.module, like)
        values = [*args, *kwargs.values()]
        number = sum(value is like for value in values)
        generator = torch.Generator().manual_seed(5)
        B, T = x.shape[:2]
        memory = torch.randn(
            (B, T + 2, *x.shape[2:]), generator=generator, dtype=torch.float64
        )
        if self.ids:
            memory = torch.randint(0, self.ids, (B, T + 2), generator=generator)
        first = True

        def one(value: Any) -> Any:
            nonlocal first
            if value is not like:
                return value
            if first:
                first = False
                return x
            return memory

        args = tuple(map(one, args))
        return (
            args,
            {k: one(v) for k, v in kwargs.items()},
            len(values) > 1 or number != 1,
        )

    def run(self, x: torch.Tensor) -> Watched:
        """A watched run on a copy of x."""
        own = x.clone()
        args, kwargs, _ = self.given(own)
        call = lambda: self.module(*args, **kwargs)  # noqa: E731
        seen = self.watched(call, own)
        if seen.around:  # layers that are given attention to call
            self.outer += [m for m in self.module.modules() if type(m) in seen.around]
            own.copy_(x)
            seen = self.watched(call, own)
        for part in seen.parts:
            part.kind = self.kind_of(part)
        return seen

    def watched(self, call: Callable, x: torch.Tensor) -> Watched:
        return watch(
            self.module, call, x, self.file.path, self.outer, self.is_attention
        )

    def kind_of(self, part: Part) -> str:
        """What a layer is, by what it did."""
        if self.is_attention(part.module):
            return "attention"
        read, made = part.read, part.made
        if read is None or made is None or not read.is_floating_point():
            return "layer"
        if read.shape == made.shape and torch.equal(read, made):
            return "same"
        if is_norm(part):
            return "norm"
        return "other" if read.dim() == 3 and mixes(part) else "layer"

    def is_attention(self, module: nn.Module) -> bool:
        own = isinstance(module, self.inner) and module is not self.module
        return own or isinstance(module, nn.MultiheadAttention)


def again(part: Part, read: torch.Tensor) -> torch.Tensor | None:
    """What a layer makes of another first tensor."""
    args, kwargs = list(part.args), dict(part.kwargs)
    if args and isinstance(args[0], torch.Tensor):
        args[0] = read
    else:
        return None
    with torch.no_grad(), contextlib.suppress(Exception):
        return next(tensors_in(part.module(*args, **kwargs)), None)
    return None


def is_norm(part: Part) -> bool:
    """Whether a layer's result is the same for its input a thousand times as large."""
    if isinstance(part.module, NORMS) or "norm" in type(part.module).__name__.lower():
        return True
    read = part.read
    assert read is not None
    one, two = again(part, read * 1e3), again(part, read * 1e6)
    if one is None or two is None or one.shape != read.shape:
        return False
    return bool(torch.allclose(one, two, rtol=1e-3, atol=1e-6)) and bool(one.std() > 0)


def mixes(part: Part) -> bool:
    """Whether a token's result changes with another token's input."""
    read = part.read
    assert read is not None
    other = read.clone()
    other[0, -1] *= OTHER
    one, two = again(part, read), again(part, other)
    if one is None or two is None or one.shape != two.shape or one.dim() != read.dim():
        return one is not None
    changed = (one != two).any(-1)
    changed[0, -1] = False
    return bool(changed.any())


def holds(module: nn.Module, block: Block) -> bool:
    """Whether the calls that a module makes are looked into."""
    if block.is_attention(module):
        return False
    own = type(module).__module__.startswith("torch.")
    if own and not isinstance(module, nn.Sequential | nn.ModuleList | nn.ModuleDict):
        return False
    return any(block.is_attention(m) for m in module.modules())


# ---------------------------------------------------------------- tokens and sequences


def mixed_tokens(block: Block, seen: Watched, x: torch.Tensor) -> Found | None:
    """Where a later token, or another sequence, gets into what each attention kept
    apart."""
    T = x.shape[1]
    ways: list[tuple[str, Callable, Callable]] = [
        ("sequence", lambda t: t[:1], lambda t: t[1:]),
        ("later token", lambda t: t[:, T - 1 :], lambda t: t[:, : T - 1]),
    ]
    for what, changing, region in ways:
        other = x.clone()
        part = changing(other)
        part.copy_((part + 1) % block.ids if block.ids else OTHER * part)
        twin = block.run(other)
        if twin.error is not None or len(twin.parts) != len(seen.parts):
            continue
        found = first_mixed(seen, twin, region, x)
        if found is not None:
            place, kept = found
            if kept:
                return Found(
                    place,
                    "mask" if what == "later token" else "residual",
                    f"Each attention keeps every {what} apart, and here one gets in: "
                    f"with another {what} the numbers differ.",
                    f"numbers made of another {what}",
                    "",
                )
    return None


def first_mixed(
    one: Watched, two: Watched, region: Callable, x: torch.Tensor
) -> tuple[Any, bool] | None:
    """(place, whether each attention kept apart what it was given) of the first tensor
    that differs in a region of the tokens."""

    def differ(a: Any, b: Any) -> bool:
        if a is None or b is None or a.dim() < 2 or a.shape != b.shape:
            return False
        if a.shape[:2] != x.shape[:2]:
            return False
        return not torch.allclose(region(a).double(), region(b).double(), rtol=1e-9)

    if not differ(one.output, two.output):
        return None
    kept = any(part.kind == "attention" for part in one.parts)
    for part, twin in zip(one.parts, two.parts, strict=True):
        if part.kind == "attention" and not differ(part.read, twin.read):
            known = part.made is not None and part.made.shape[:2] == x.shape[:2]
            kept = kept and known and not differ(part.made, twin.made)
    parts = zip(one.parts, two.parts, strict=True)
    events = [(p.order, p.place, p.made, q.made) for p, q in parts]
    names = zip(one.bound, two.bound, strict=False)  # a loop may end early
    events += [(p.order, p.place, p.value, q.value) for p, q in names if not p.argument]
    for _, place, a, b in sorted(events, key=lambda event: event[0]):
        if differ(a, b):
            return place, kept
    return one.left, kept


# ---------------------------------------------------------------- what is lost


def lost_result(block: Block, seen: Watched, x: torch.Tensor) -> Found | None:
    """What a part makes of attention, and the block's result is without."""
    if seen.output is None:
        return None
    for part in seen.parts:
        if part.kind != "attention":
            continue
        with with_result(part.module, scaled):
            other = block.run(x)
        if other.error is not None or len(other.calls) != len(seen.calls):
            continue
        if other.output is None or not torch.equal(other.output, seen.output):
            continue
        pairs = zip(seen.calls, other.calls, strict=True)
        changed = [
            one
            for one, two in pairs
            if one.made is not None
            and two.made is not None
            and not torch.equal(one.made, two.made)
        ]
        lost: Part = min(changed, key=lambda call: call.path.count("."), default=part)
        return Found(
            lost.place,
            "block",
            f"What {lost.path} makes is lost: with other numbers of {part.path} the "
            f"result of {block.name} is the same.",
            f"a result without {lost.path}",
            f"the result of {lost.path} in what follows",
        )
    return None


CONTEXT = re.compile(r"memory|context|enc|cross|mem$|cond")


def lost_context(block: Block, seen: Watched, x: torch.Tensor) -> Found | None:
    """A second input that forward asks for and that changes nothing."""
    args, kwargs, _ = block.given(x)
    parts = [part for part in seen.parts if part.kind == "attention"]
    parameters = inspect.signature(block.module.forward).parameters.values()
    names = [p.name for p in parameters if p.default is p.empty]
    for at, name in enumerate(names[: len(args)]):
        value = args[at]
        if value is x or not isinstance(value, torch.Tensor) or len(parts) < 2:
            continue
        if not CONTEXT.search(plain(name)):
            continue
        other = (value + 1) % block.ids if block.ids else OTHER * value
        made = result_of(block.module, (*args[:at], other, *args[at + 1 :]), kwargs)
        if (
            made is not None
            and seen.output is not None
            and torch.equal(made, seen.output)
        ):
            return Found(
                parts[1].place,
                "block",
                f"forward is given {name}, and with other numbers in it the result is "
                f"the same: no attention reads it; {parts[1].path} is given x alone.",
                f"{parts[1].path} of x alone",
                f"{parts[1].path} with keys and values from {name}",
            )
    return None


def scaled(result: Any) -> Any:
    """A result of attention with other numbers."""
    if isinstance(result, torch.Tensor):
        return OTHER * result
    if type(result) in (tuple, list) and result:
        return type(result)([scaled(result[0]), *result[1:]])
    return result


# ---------------------------------------------------------------- masks


def mask_lost(block: Block, seen: Watched, x: torch.Tensor) -> Found | None:
    """A mask that the block is given and its attention is not."""
    asked = masks_of(block.module)
    parts = [part for part in seen.parts if part.kind == "attention"]
    if len(asked) != 1 or len(parts) != 1 or block.ids:
        return None
    part = parts[0]
    if causal(block.module, x, [block.given(x)[:2]]) or not masks_of(part.module):
        return None
    given, alone = (
        [
            way.arguments(module, x)
            for way in ways_to_call(module, x, block.sizes.D, True)
        ]
        for module in (block.module, part.module)
    )
    if differs(block.module, given) or not causal(part.module, x, alone):
        return None
    return Found(
        part.place,
        "mask",
        f"forward is given {asked[0]}, and its result is the same with every causal "
        f"mask as with none: {part.path} takes one, and it is not passed on.",
        f"{part.path} without a mask",
        f"{part.path} given {asked[0]}",
    )


def masks_of(module: nn.Module) -> list[str]:
    """The parameters of forward for a mask, or a switch that asks for a causal one."""
    names = inspect.signature(module.forward).parameters
    return [n for n in names if is_mask(n) or plain(n) in ("iscausal", "causal")]


def causal(module: nn.Module, x: torch.Tensor, calls: list[tuple[tuple, dict]]) -> bool:
    """Whether under one of these calls tokens read earlier ones and no later one."""
    last = x.shape[1] - 1
    for args, kwargs in calls:
        made = []
        for changed in (None, last, 0):
            other = x.clone()
            if changed is not None:
                other[:, changed] *= OTHER
            made.append(result_of(module, *replaced(args, kwargs, x, other)))
        one, ahead, behind = made
        if one is None or ahead is None or behind is None or one.shape != x.shape:
            continue
        reads = not torch.equal(one[:, last], behind[:, last])
        blind = torch.equal(one[:, :last], ahead[:, :last])
        if bool(one.isfinite().all()) and blind and reads:
            return True
    return False


def differs(module: nn.Module, calls: list[tuple[tuple, dict]]) -> bool:
    """Whether two of these calls, of those that run, have different results."""
    made = [result_of(module, args, kwargs) for args, kwargs in calls]
    ran = [value for value in made if value is not None]
    return len(ran) < 2 or any(not torch.equal(ran[0], value) for value in ran)


def result_of(module: nn.Module, args: tuple, kwargs: dict) -> torch.Tensor | None:
    with torch.no_grad(), contextlib.suppress(Exception):
        return next(tensors_in(module(*copied(args), **copied(kwargs))), None)
    return None
