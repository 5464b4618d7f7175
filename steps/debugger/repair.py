"""Repair, proved by running it: the change of the reader's text that mends a module."""

import heapq
import itertools
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from steps.debugger.build import build, make_lazy, prepare
from steps.debugger.case import Case, masks_in
from steps.debugger.edits import Edit, applied, edits, spots
from steps.debugger.program import Program, Seen
from steps.debugger.readings import Outputs, Reading, outputs
from steps.debugger.run import is_weight, place_of, state_of
from steps.pytorch import nn, torch
from steps.walk.recorder import tensors_in

MORE = 0.5  # by how much another repair may cost more than the best to be looked for


@dataclass(frozen=True)
class Proof:
    """What shows that a module is right."""

    reading: Reading | None  # None where something else was asked than an output
    apart: float  # the largest difference to the heads computed separately
    expected: torch.Tensor | None = None  # what the first input must give
    inputs: int = 1  # how many inputs it held for

    @property
    def usual(self) -> bool:
        return self.reading is None or self.reading.usual


Accept = Callable[[nn.Module], Proof | None]  # may raise what the module raises


@dataclass(frozen=True)
class Repair:
    """A change with which the module was run and found right."""

    changes: tuple[tuple[int, str], ...]  # lines, and each as it must read
    kind: str
    cost: float
    proof: Proof
    without: float  # the difference before the change; inf where it raised

    @property
    def line(self) -> int:
        return self.changes[0][0]

    @property
    def json(self) -> list[dict[str, Any]]:
        return [{"line": line, "new": new} for line, new in self.changes]


# ---------------------------------------------------------------- what is right


def heads_asked(case: Case) -> list[int]:
    """The numbers of heads that the module may have."""
    if case.built is not None and case.built.heads_asked:
        return [case.sizes.H]
    numbers = [v for m in case.module.modules() for v in vars(m).values()]
    found = {n for n in numbers if type(n) is int and 1 < n <= 64}
    return sorted(found | {case.sizes.H, 1})


def modes_of(case: Case) -> list[bool]:
    """Whether its attention must be causal: both, where nothing tells."""
    if case.undecided:
        return [masks_in(case.run, case.T)]
    return [case.causal]


def inputs_of(case: Case) -> list[torch.Tensor]:
    """x, and two more inputs of other lengths (of the same, where no other runs)."""
    made = [case.x]
    for seed, T in ((21, max(case.T - 2, 2)), (22, case.T + 2)):
        generator = torch.Generator().manual_seed(seed)
        shape = (*case.x.shape[:-2], T, case.x.shape[-1])
        made.append(torch.randn(shape, generator=generator, dtype=torch.float64))
    return made


def output_of(case: Case, module: nn.Module, x: torch.Tensor) -> torch.Tensor | None:
    """The output for x, as (B, T, E); may raise what forward raises."""
    torch.default_generator.manual_seed(1)
    with torch.no_grad():
        out = next(tensors_in(case.forward(module, x)), None)
    if out is not None and x.dim() == 2 and out.dim() == 2:
        return out[None]
    return out


def weights_of(module: nn.Module) -> dict[str, torch.Tensor]:
    state = state_of(module)
    return {path: t for path, t in state.items() if is_weight(state, path)}


@dataclass
class RightOutput:
    """Whether a module's output is that of heads computed from its own weights."""

    case: Case
    modes: list[bool] = field(default_factory=list)
    known: dict[tuple, Outputs] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.modes = self.modes or modes_of(self.case)
        self.heads, self.inputs = heads_asked(self.case), inputs_of(self.case)

    def outputs(self, number: int, module: nn.Module) -> Outputs:
        """What its weights allow for one of the inputs."""
        weights = weights_of(module)
        sizes = tuple((path, tuple(t.shape)) for path, t in weights.items())
        key = number, self.inputs[number].shape, sizes
        if key not in self.known:
            x = self.inputs[number]
            x = x[None] if x.dim() == 2 else x
            self.known[key] = outputs(x, weights, self.heads, self.modes)
        return self.known[key]

    def found(self, number: int, module: nn.Module) -> dict[Reading, float]:
        out = output_of(self.case, module, self.inputs[number])
        if out is None:
            return {}
        return dict(self.outputs(number, module).find(out))

    def __call__(self, module: nn.Module) -> Proof | None:
        readings = self.found(0, module)
        if not readings:
            return None
        for number in range(1, len(self.inputs)):
            try:
                again = self.found(number, module)
            except Exception:  # of one length only
                x = self.inputs[number]
                generator = torch.Generator().manual_seed(number)
                self.inputs[number] = torch.randn(
                    self.case.x.shape, generator=generator, dtype=x.dtype
                )
                again = self.found(number, module)
                self.inputs[number] = x
            readings = {r: max(d, again[r]) for r, d in readings.items() if r in again}
        if not readings:
            return None
        best = min(readings, key=lambda r: (not r.usual, readings[r]))
        rows = self.outputs(0, module)
        expected = next(value for reading, value in rows if reading == best)
        return Proof(best, readings[best], expected, len(self.inputs))


# ---------------------------------------------------------------- the workshop


class Workshop:
    """The module under examination, run with lines of its file reading otherwise."""

    def __init__(self, case: Case, accept: Accept) -> None:
        self.case, self.accept = case, accept
        names = vars(sys.modules[type(case.module).__module__])
        self.program = Program(case.file.path, names)
        self.seen, self.raised = Seen(), None
        self.constructor: set[int] = set()  # lines that ran while it was made
        self.runs = 0

    def watch(self) -> None:
        """Run it once as it stands, noting what is in scope at each line."""
        if self.case.built is not None:
            self.program.watch(self.rebuilt, self.seen)
            self.constructor = set(self.seen.scopes)
        module = self.case.copied()
        try:
            run = lambda: output_of(self.case, module, self.case.x)  # noqa: E731
            self.program.watch(run, self.seen)
        except Exception as error:
            place = place_of(error, self.case.file.path)
            self.raised = place.line if place is not None else None

    def rebuilt(self) -> nn.Module:
        """The module made anew, with the weights of the one under examination."""
        case = self.case
        module = build(type(case.module), case.sizes).module
        make_lazy(module, case.x, case.sizes.D)
        prepare(module)
        for path, tensor in weights_of(module).items():
            own = case.weights.get(path)
            if own is None or own.shape != tensor.shape:
                drawn = torch.Generator().manual_seed(zlib.crc32(path.encode()))
                own = torch.randn(tensor.shape, generator=drawn, dtype=tensor.dtype)
                own = own * (1.5 / max(tensor.shape[-1], 1) ** 0.5)
            with torch.no_grad():
                tensor.copy_(own)
        return module

    def attempt(self, lines: Mapping[int, str]) -> tuple[Proof | None, int | None]:
        """What is proved with lines changed, and the line where it raises, if so."""
        self.runs += 1
        try:
            with self.program.changed(lines):
                parts = {self.program.part_at(line) for line in lines}
                ran = {n for part in parts if part for n in part.lines}
                anew = not ran.isdisjoint(self.constructor)
                if anew and self.case.built is None:
                    return None, 0
                module = self.rebuilt() if anew else self.case.copied()
                return self.accept(module), None
        except Exception as error:
            place = place_of(error, self.case.file.path)
            return None, place.line if place is not None else 0


# ---------------------------------------------------------------- the search


@dataclass(order=True)
class Candidate:
    order: tuple[float, int]
    edit: Edit = field(compare=False)


def candidates(shop: Workshop, D: int) -> list[Edit]:
    """All changes to try, the cheapest first."""
    case = shop.case
    singles: list[Edit] = []
    for spot in spots(shop.program, shop.seen, shop.raised, case.T, D):
        singles += edits(spot)
    groups: dict[tuple, list[Edit]] = {}
    for edit in singles:
        groups.setdefault(edit.like, []).append(edit)
    together = [joined(group) for group in groups.values() if len(group) in (2, 3, 4)]
    hints = {case.seen, shop.raised} - {None}
    made = singles + [edit for edit in together if edit is not None]
    return sorted(made, key=lambda e: (e.cost + 0.15 * (e.line not in hints), e.line))


def joined(group: list[Edit]) -> Edit | None:
    """The same change at several statements of the same form, as one."""
    puts = tuple(put for edit in group for put in edit.puts)
    places = [span for span, _ in puts]
    if len({edit.line for edit in group}) < len(group) or len(set(places)) < len(places):
        return None
    return Edit(group[0].cost + 0.3, group[0].kind, puts)


def find(
    case: Case, budget: float = 3.0, accept: Accept | None = None
) -> list[Repair]:
    """The changes that mend a module, the best first; none if none was found.

    accept: what must hold, other than a right output; see RightOutput.
    budget: seconds of this process.
    """
    end = time.process_time() + budget
    accept = accept or RightOutput(case)
    shop = Workshop(case, accept)
    shop.watch()
    found: list[Repair] = []
    tried: set[tuple] = set()
    for edit in candidates(shop, width_of(case)):
        best = min((r.cost for r in found), default=float("inf"))
        if time.process_time() > end or edit.cost > best + MORE:
            break
        lines = applied(shop.program.lines, edit)
        key = tuple(sorted(lines.items()))
        if key in tried:
            continue
        tried.add(key)
        proof, _ = shop.attempt(lines)
        if proof is not None:
            cost = edit.cost + 1.5 * (not proof.usual)
            found.append(Repair(key, edit.kind, cost, proof, before(case, proof)))
    return sorted(found, key=lambda repair: (repair.cost, repair.line))


def width_of(case: Case) -> int:
    """The features of a head."""
    judged = case.judgement
    return judged.heads.D if judged is not None else case.sizes.D


def before(case: Case, proof: Proof) -> float:
    """How far the output was off without the change."""
    try:
        out = output_of(case, case.copied(), case.x)
    except Exception:
        return float("inf")
    if out is None or proof.expected is None or out.shape != proof.expected.shape:
        return float("inf")
    return float((out.double() - proof.expected).abs().max())
