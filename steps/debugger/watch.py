"""Watch a block run: what its layers read and made, and of which sums each is."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from steps.debugger.load import unless_memory
from steps.debugger.run import place_of
from steps.pytorch import nn, torch
from steps.walk.recorder import tensors_in, version
from steps.walk.source import Place

EXACT = 1e-9  # of the largest number: how near a sum of known tensors must come


@dataclass(eq=False)
class Part:
    """One call of a layer by the block, or by a module between them."""

    module: nn.Module
    path: str
    place: Place | None  # of the call, in the file
    order: int
    args: tuple  # copies of what it was given
    kwargs: dict[str, Any]
    result: Any = None
    made: torch.Tensor | None = None  # the first tensor that it returned
    kind: str = "layer"  # "attention", "norm", "layer", "same" for what changes nothing

    @property
    def read(self) -> torch.Tensor | None:
        """The first tensor that it was given, as it was then."""
        return next(tensors_in((self.args, self.kwargs)), None)


@dataclass(eq=False)
class Bound:
    """A name of the block's that was given a tensor."""

    order: int
    place: Place
    name: str
    value: torch.Tensor
    argument: bool = False  # of a function that was called with it


@dataclass
class Watched:
    """One run of a block."""

    block: nn.Module
    x: torch.Tensor  # or, of a model, what its first layer after the embedding reads
    parts: list[Part] = field(default_factory=list)
    calls: list[Part] = field(default_factory=list)  # of the modules between them
    around: set[type] = field(default_factory=set)  # layers that call attention inside
    bound: list[Bound] = field(default_factory=list)
    result: Any = None
    error: BaseException | None = None
    place: Place | None = None  # in the file, of what raised
    left: Place | None = None  # of the block's return

    @property
    def output(self) -> torch.Tensor | None:
        """The first tensor of x's shape that it returned, or the first."""
        made = list(tensors_in(self.result))
        alike = (t for t in made if t.shape == self.x.shape)
        return next(alike, made[0] if made else None)


def watch(
    block: nn.Module,
    call: Callable[[], Any],
    x: torch.Tensor,
    file: str,
    outer: list[nn.Module],
    attention: Callable[[nn.Module], bool],
) -> Watched:
    """Run `call` of the block, and keep what each layer of `outer` was given and made.

    outer: the block, and the modules in it whose own layers are told apart; all other
    modules are taken as one layer each. attention: whether a module is attention.
    """
    seen = Watched(block, x.detach().clone())
    clock = Clock(file, {id(module) for module in outer}, seen, attention)
    hooks = []
    for path, module in block.named_modules():
        if module is not block:
            before = clock.enters(path)
            hooks.append(module.register_forward_pre_hook(before, with_kwargs=True))
            hooks.append(module.register_forward_hook(clock.leaves, always_call=True))
    tracing = sys.gettrace()
    try:
        torch.default_generator.manual_seed(1)
        sys.settrace(clock.trace)
        with torch.no_grad():
            seen.result = call()
    except (Exception, SystemExit) as error:
        sys.settrace(tracing)
        unless_memory(error)
        seen.error, seen.place = error, place_of(error, file)
    finally:
        sys.settrace(tracing)
        for hook in hooks:
            hook.remove()
    return seen


class Clock:
    """Puts in order what layers did and what names were bound."""

    def __init__(
        self, file: str, outer: set[int], seen: Watched, attention: Callable
    ) -> None:
        self.file, self.outer, self.seen = file, outer, seen
        self.attention = attention
        self.order = 0
        self.running: list[Part] = []  # outermost first
        self.held: dict[FrameType, tuple[int, dict[str, tuple[int, int]]]] = {}

    def tick(self) -> int:
        self.order += 1
        return self.order

    def layers(self) -> list[Part]:
        """The layers that are running, outermost first: the first is the block's."""
        return [part for part in self.running if id(part.module) not in self.outer]

    def enters(self, path: str) -> Callable:
        def hook(module: nn.Module, args: tuple, kwargs: dict) -> None:
            inside = self.layers()
            if self.attention(module) and not any(
                self.attention(part.module) for part in inside
            ):
                self.seen.around |= {type(part.module) for part in inside}
            place = self.caller()
            if not inside:
                args, kwargs = copied(args), copied(kwargs)
            self.running.append(Part(module, path, place, self.tick(), args, kwargs))

        return hook

    def leaves(self, module: nn.Module, args: tuple, result: Any) -> None:
        if not self.running:
            return
        part = self.running.pop()
        if self.layers() or result is None:
            return
        part.order = self.tick()
        part.result = copied(result)
        part.made = next(tensors_in(part.result), None)
        between = id(part.module) in self.outer
        (self.seen.calls if between else self.seen.parts).append(part)

    def caller(self) -> Place | None:
        """The innermost place of the file that is running."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename == self.file:
                return self.at(frame.f_lineno)
            frame = frame.f_back
        return None

    def at(self, line: int) -> Place:
        return Place(self.file, line, line, None, None)

    def trace(self, frame: FrameType, event: str, arg: Any) -> Callable | None:
        """Follow the names of the block's own functions, line by line."""
        owner = frame.f_locals.get("self")
        if frame.f_code.co_filename != self.file or id(owner) not in self.outer:
            return None
        self.held[frame] = frame.f_lineno, {}
        return self.line(frame, "call", None)

    def line(self, frame: FrameType, event: str, arg: Any) -> Callable | None:
        if event not in ("call", "line", "return") or frame not in self.held:
            return self.line
        line, before = self.held[frame]
        now = states(frame)
        for name, state in now.items():
            if before.get(name) != state:
                value = frame.f_locals[name].detach().clone()
                order, place, given = self.tick(), self.at(line), event == "call"
                self.seen.bound.append(Bound(order, place, name, value, given))
        self.held[frame] = frame.f_lineno, now
        if event == "return":
            self.seen.left = self.at(line)
            del self.held[frame]
        return self.line


def states(frame: FrameType) -> dict[str, tuple[int, int]]:
    """Which tensor each name of a function stands for, and how often it was changed."""
    return {
        name: (id(value), version(value))
        for name, value in frame.f_locals.items()
        if isinstance(value, torch.Tensor)
    }


def copied(value: Any) -> Any:
    """The same with copies of the tensors in it."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: copied(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return tuple(copied(part) for part in value)
    return value


# ---------------------------------------------------------------- sums


class Sums:
    """Tensors as sums of x and of what the layers made, by their numbers.

    A sum is a dict: the number of a term, 0 for x and i for the i-th term, -> how often
    it was added.
    """

    def __init__(self, seen: Watched) -> None:
        self.seen = seen
        self.terms: list[torch.Tensor] = [seen.x]
        self.of: dict[int, int] = {}  # id of a part -> its term
        for part in seen.parts:
            made = part.made
            if made is None or made.shape != seen.x.shape:
                continue
            known = (i for i, term in enumerate(self.terms) if torch.equal(term, made))
            self.of[id(part)] = next(known, len(self.terms))
            if self.of[id(part)] == len(self.terms):
                self.terms.append(made)

    def sum_of(self, value: torch.Tensor | None) -> dict[int, float] | None:
        """The sum that a tensor is, or None."""
        if value is None or value.shape != self.terms[0].shape:
            return None
        if not value.is_floating_point() or not bool(value.isfinite().all()):
            return None
        table = torch.stack([term.double().flatten() for term in self.terms], 1)
        wanted = value.double().flatten()
        found = torch.linalg.lstsq(table, wanted[:, None]).solution[:, 0]
        if bool(
            (table @ found - wanted).abs().max() > EXACT * (1 + wanted.abs().max())
        ):
            return None
        near = found.round(decimals=7)
        return {i: float(n) for i, n in enumerate(near) if n != 0}


@contextlib.contextmanager
def with_result(module: nn.Module, change: Callable[[Any], Any]) -> Iterator[None]:
    """Inside, a module returns what `change` makes of its result."""
    hook = module.register_forward_hook(lambda m, args, result: change(result))
    try:
        yield
    finally:
        hook.remove()
