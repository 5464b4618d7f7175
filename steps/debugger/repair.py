"""Repair, proved by running it: the change of the reader's text that mends a module."""

import contextlib
import inspect
import itertools
import re
import signal
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from steps.debugger.build import make_lazy, prepare
from steps.debugger.calls import says_tokens_first
from steps.debugger.case import Case, masks_in
from steps.debugger.contain import in_main_thread
from steps.debugger.edits import Edit, applied, edits, spots
from steps.debugger.inputs import opened, replaced
from steps.debugger.program import Program, Seen
from steps.debugger.readings import (
    Given,
    Outputs,
    Reading,
    letters_of,
    outputs,
    parted,
)
from steps.debugger.run import is_weight, state_of
from steps.debugger.ways import ways
from steps.pytorch import nn, torch
from steps.walk.recorder import storage, tensors_in
from steps.walk.source import trace_of

TorchFunctionMode = torch.overrides.TorchFunctionMode

MORE = 0.3  # by how much another repair may cost more than the best to be looked for


@dataclass(frozen=True)
class Proof:
    """What shows that a module is right."""

    reading: Reading | None  # None where something else was asked than an output
    apart: float  # the largest difference to the heads computed separately
    expected: torch.Tensor | None = None  # what the first input must give
    trains: bool = True  # whether dropout, if any, acts on the weights in train mode

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
    if not found:  # hard-coded, perhaps
        width = case.x.shape[-1]
        found = {n for n in range(2, 17) if width % n == 0}
    return sorted(found | {case.sizes.H, 1})


def modes_of(case: Case) -> list[bool]:
    """Whether its attention must be causal: both, where nothing tells."""
    if not case.undecided:
        return [case.causal]
    text = "".join(case.file.source.lines) if case.file.source is not None else ""
    if masks_in(case.run, case.T) or "is_causal=True" in text.replace(" ", ""):
        return [True]
    return [False, True]


def inputs_of(case: Case, fixed: bool = False) -> list[torch.Tensor]:
    """x, and two more inputs of other lengths, or of the same one."""
    made, T = [case.x], case.T
    longer = max(case.sizes.context, T + 1)
    lengths = (T, T) if fixed else (max(T - 2, 2), longer)
    for seed, T in enumerate(lengths, start=21):
        generator = torch.Generator().manual_seed(seed)
        shape = (*case.x.shape[:-2], T, case.x.shape[-1])
        made.append(torch.randn(shape, generator=generator, dtype=torch.float64))
    return made


def thin(weights: torch.Tensor) -> torch.Tensor:
    """What stands for dropout: it tells one tensor from another in any arrangement."""
    return weights * weights


class Thinned(TorchFunctionMode):
    """Dropout that acts is `thin` inside: where it stands shows in the numbers."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "dropout":
            given = dict(zip(("input", "p", "training"), args, strict=False)) | kwargs
            acts = given.get("training", True) and given.get("p", 0.5) > 0
            return thin(given["input"]) if acts else given["input"]
        if name == "scaled_dot_product_attention":
            return attention_with_dropout(*args, **kwargs)
        return func(*args, **kwargs)


def attention_with_dropout(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """torch's scaled_dot_product_attention, with `thin` for its dropout."""
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if enable_gqa or (is_causal and attn_mask is not None):
        raise ValueError("not told apart here")
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    weights = scores.softmax(-1)
    return (thin(weights) if dropout_p > 0 else weights) @ value


@dataclass
class Trial:
    """One input: what forward is given, and what that means for attention."""

    args: tuple
    kwargs: dict[str, Any]
    given: Given
    turn: Callable[[torch.Tensor], torch.Tensor]  # an output as (B, T, E)
    shown: torch.Tensor  # x as forward is given it

    def output(self, module: nn.Module) -> torch.Tensor | None:
        """The output of a module; may raise what forward raises."""
        torch.default_generator.manual_seed(1)
        args = tuple(cloned(value) for value in self.args)
        kwargs = {name: cloned(value) for name, value in self.kwargs.items()}
        module.train(self.given.thin is not None)
        with (
            torch.no_grad(),
            Thinned() if self.given.thin else contextlib.nullcontext(),
        ):
            result = opened(module(*args, **kwargs), self.shown)
            out = next(tensors_in(result), None)
        return None if out is None else self.turn(out)

    def runs(self, module: nn.Module) -> bool:
        try:
            self.output(module)
        except Exception:
            return False
        return True


def cloned(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def as_they_are(out: torch.Tensor) -> torch.Tensor:
    return out if out.dim() > 2 else out[None]


def turned(out: torch.Tensor) -> torch.Tensor:
    return out.transpose(0, 1) if out.dim() > 2 else out


def channels_last(out: torch.Tensor) -> torch.Tensor:
    """(B, C, T) or (B, C, H, W) as (B, T, C)."""
    return out.flatten(2).transpose(1, 2) if out.dim() > 2 else out


def trial_of(case: Case, x: torch.Tensor, seed: int) -> Trial:
    """How forward is called with x, or with what the reader gives it instead."""
    if not case.form.plain and x.dim() == 3:
        return trial_in_form(case, case.form.laid(x))
    args, kwargs = case.how(case.module, x)
    held = [t for t in tensors_in((args, kwargs)) if t.is_floating_point()]
    if any(storage(t) == storage(x) for t in held) or not held:
        others = [t for t in held if storage(t) != storage(x)]
        main, turn = x, turned if case.tokens_first else as_they_are
        x = main = x if x.dim() > 2 else x[None]
    else:
        main, others = held[0], held[1:]
        if seed:
            drawn = torch.Generator().manual_seed(seed)
            new = torch.randn(main.shape, generator=drawn, dtype=main.dtype)
            (args, kwargs), main = replaced(args, kwargs, main, new), new
        turn = arrangement(case, main)
    if main.dim() == 5:
        return Trial(args, kwargs, Given(main, heads=main.unbind(2)), as_they_are, main)
    sequences = main if main is x else turn(main)
    given = given_to(sequences, others, list(tensors_in((args, kwargs))))
    given.bases, given.window = bases_of(case), window_of(case)
    return Trial(args, kwargs, given, turn, main)


def trial_in_form(case: Case, x: torch.Tensor) -> Trial:
    """How forward is called with an image, channels first or packed."""
    args, kwargs = case.arguments(case.module, x)
    given = Given(x)
    if case.form.packed:
        layout, H = case.form.layouts()[0], case.form.heads
        heads = parted(x, layout, H, x.shape[-1] // (3 * H)).transpose(2, 3)
        given = Given(x, heads=heads.unbind())
    return Trial(args, kwargs, given, case.turned, case.form.given(x))


def arrangement(case: Case, main: torch.Tensor) -> Callable:
    """How the input and the output are arranged, by what the weights read."""
    widths = {n for t in case.weights.values() if t.dim() > 1 for n in t.shape}
    if main.dim() == 4 or (main.shape[-1] not in widths and main.shape[1] in widths):
        return channels_last
    return turned if says_tokens_first(case.module) else as_they_are


def given_to(
    x: torch.Tensor, others: list[torch.Tensor], held: list[torch.Tensor]
) -> Given:
    """What else forward was given: a context, a cache, which tokens are padding."""
    B, T = x.shape[:2]
    contexts = [t for t in others if t.dim() == 3 and len(t) == B and t.shape[1] != T]
    past = [t for t in others if t.dim() == 4 and len(t) == B]
    flags = [t for t in held if tuple(t.shape) == (B, T) and t.unique().numel() == 2]
    return Given(
        x,
        contexts[0] if contexts else None,
        tuple(past) if len(past) == 2 and past[0].shape == past[1].shape else (),
        flags[0].long() if flags else None,
    )


def window_of(case: Case) -> int:
    """How many tokens a token may see, where the module has a window of them."""
    own = dict(vars(case.module))
    with contextlib.suppress(TypeError, ValueError):
        parameters = inspect.signature(type(case.module)).parameters.values()
        own = {p.name: p.default for p in parameters} | own
    sizes = {n for name, n in own.items() if "window" in name and type(n) is int}
    return sizes.pop() if len(sizes) == 1 and min(sizes) > 0 else 0


def bases_of(case: Case) -> tuple[float, ...]:
    """The bases that rotary positions of this file may have."""
    if case.file.source is None:
        return ()
    text = "".join(case.file.source.lines)
    if "cos" not in text or "sin" not in text:
        return ()
    told = [float(n) for n in re.findall(r"\b\d{3,7}(?:\.0)?\b", text)]
    told += [10**0.5] * bool(case.made_up)
    return tuple(dict.fromkeys(told or [10000.0]))


def weights_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """What a module learns, by path: as layers read it, where it is made of more."""
    state = state_of(module)
    found = {path: t for path, t in state.items() if is_weight(state, path)}
    made = re.compile(r"_(g|v|orig|u)$")  # what torch's older norms make a weight of
    found = {
        path: t
        for path, t in found.items()
        if made.sub("", path) == path or made.sub("", path) not in found
    }
    for name, part in module.named_modules():
        for own in getattr(part, "parametrizations", {}):
            inner = f"{name}.parametrizations.{own}.".lstrip(".")
            found = {p: t for p, t in found.items() if not p.startswith(inner)}
            found[f"{name}.{own}".lstrip(".")] = getattr(part, own).detach()
    return found


def layers_around(module: nn.Module) -> tuple[list[nn.Module], nn.Module | None, str]:
    """The norms, the layer after attention, if any, and the path of attention."""
    kinds = re.compile(r"[^_].*norm", re.IGNORECASE)
    norms = [m for m in module.modules() if kinds.fullmatch(type(m).__name__)]
    roles = [path for path in weights_of(module) if letters_of(path)]
    feed, inside = None, ""
    for name, child in module.named_children():
        own = any(path.startswith(name + ".") for path in roles)
        large = any(p.dim() > 1 for p in child.parameters())
        if own and large and list(child.children()):
            inside = name + "."
        elif large and not own and list(child.children()):
            feed = child
    if not norms or len(norms) > 2:
        return [], None, ""
    return norms, feed if inside else None, inside


@dataclass
class RightOutput:
    """Whether a module's output is that of heads computed from its own weights."""

    case: Case
    modes: list[bool] = field(default_factory=list)
    train: bool = False  # in train mode, where dropout acts on the weights only
    known: dict[tuple, Outputs] = field(default_factory=dict)

    def __post_init__(self) -> None:
        case = self.case
        self.modes, self.heads = self.modes or modes_of(case), heads_asked(case)
        self.trials = [trial_of(case, x, n) for n, x in enumerate(inputs_of(case))]
        alone = case.copied()
        self.count = len(weights_of(alone))
        if self.trials[0].runs(alone) and not self.trials[1].runs(alone):
            fixed = inputs_of(case, fixed=True)
            self.trials = [trial_of(case, x, n) for n, x in enumerate(fixed)]
        for trial in self.trials if self.train else ():
            trial.given.thin = thin
        drops = any(isinstance(part, nn.Dropout) for part in case.module.modules())
        ours = drops and not self.train
        self.in_train = replace(self, train=True, known={}) if ours else None

    def outputs(self, number: int, module: nn.Module) -> Outputs:
        """What its weights allow for one of the inputs."""
        weights = weights_of(module)
        sizes = tuple((path, tuple(t.shape)) for path, t in weights.items())
        key = number, sizes
        if key not in self.known:
            norms, feed, inside = layers_around(module)
            weights = {p: t for p, t in weights.items() if p.startswith(inside)}
            with torch.no_grad():
                self.known[key] = outputs(
                    self.trials[number].given,
                    weights,
                    self.heads,
                    self.modes,
                    norms,
                    feed,
                )
        return self.known[key]

    def found(self, number: int, module: nn.Module) -> dict[Reading, float]:
        out = self.trials[number].output(module)
        if out is None:
            return {}
        return self.outputs(number, module).find(out)

    def __call__(self, module: nn.Module) -> Proof | None:
        count = len(weights_of(module))
        if not self.count <= count <= 2 * self.count + 4:
            return None  # layers lost, or heads without number
        readings = self.found(0, module)
        for number in range(1, len(self.trials)):
            if not readings:
                return None
            again = self.found(number, module)
            readings = {r: max(d, again[r]) for r, d in readings.items() if r in again}
        if not readings:
            return None
        best = min(readings, key=lambda r: (not r.usual, readings[r]))
        rows = itertools.chain(*self.outputs(0, module).rows.values())
        expected = next(value for reading, value in rows if reading == best)
        trains = self.in_train is None or self.in_train.holds(module)
        return Proof(best, readings[best], expected, trains)

    def holds(self, module: nn.Module) -> bool:
        """Whether it can be called and is right."""
        try:
            return self(module) is not None
        except Exception:
            return False
        finally:
            module.eval()


def right_output(case: Case) -> Accept:
    """Whether a module's output is right as it is called, or with a mask that fits.

    Where it raises, which mask it wants is not known.
    """
    first = RightOutput(case)
    if case.run.error is None or case.asked_call is not None:
        return first
    size = case.T, case.T
    square = [way for way in ways(case) if way.mask and way.mask.shape == size]
    others = [RightOutput(way, [True]) for way in square if way.said != case.said]

    def accept(module: nn.Module) -> Proof | None:
        raised = None
        for one in (first, *others):
            try:
                proof = one(module)
            except Exception as error:
                raised = raised or error
                continue
            if proof is not None:
                return proof
        if raised is not None:
            raise raised
        return None

    return accept


# ---------------------------------------------------------------- the workshop


class Kept:
    """A module that is put back as it was after each run."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        parts = list(module.modules())
        self.held = [
            (part, dict(vars(part)), dict(part._buffers), dict(part._parameters))
            for part in parts
        ]
        self.numbers = [(t, t._version, t.clone()) for t in state_of(module).values()]
        plain = [v for part in parts for n, v in vars(part).items() if n[0] != "_"]
        self.grows = any(isinstance(v, list | dict | set) for v in plain)

    def restore(self) -> None:
        for part, own, buffers, parameters in self.held:
            vars(part).clear()
            vars(part).update(own)
            part._buffers = buffers.copy()
            part._parameters = parameters.copy()
        with torch.no_grad():
            for tensor, version, numbers in self.numbers:
                if tensor._version != version:
                    tensor.copy_(numbers)
        self.numbers = [(t, t._version, n) for t, _, n in self.numbers]


class Workshop:
    """The module under examination, run with lines of its file reading otherwise."""

    def __init__(self, case: Case, accept: Accept) -> None:
        self.case, self.accept = case, accept
        self.make = case.make
        if self.make is None and case.built is not None:
            again = case.built.again
            self.make = None if again is None else lambda: again(case.sizes)
        own = sys.modules.get(type(case.module).__module__)
        names = vars(own) if own is not None else {}
        self.program = Program(case.file.path, names)
        self.seen = Seen()
        self.raised: int | None = None
        self.constructor: set[int] = set()  # lines that ran while it was made
        self.kept = Kept(case.copied())

    def as_it_was(self) -> nn.Module:
        """The module under examination, whatever earlier runs did to it."""
        if self.kept.grows:
            return self.case.copied()
        self.kept.restore()
        return self.kept.module

    def watch(self) -> None:
        """Run it once as it stands, noting what is in scope at each line."""
        if self.make is not None:
            self.program.watch(self.rebuilt, self.seen)
            self.constructor = set(self.seen.scopes)
        try:
            self.run_watched(self.seen)
        except Exception as error:
            place = trace_of(error, self.case.file.path)
            self.raised = place.tb_lineno if place is not None else None

    def run_watched(self, seen: Seen) -> None:
        """Run it, noting what is in scope; may raise what it raises."""
        module, trial = self.case.copied(), trial_of(self.case, self.case.x, 0)
        self.program.watch(lambda: trial.output(module), seen)

    def rebuilt(self) -> nn.Module:
        """The module made anew, with the weights of the one under examination."""
        case = self.case
        assert self.make is not None
        module = self.make()
        make_lazy(module, case.x, case.sizes.D)
        if case.hidden:
            prepare(module)
        else:
            module.eval().double()
        state = state_of(module)
        for path, tensor in state.items():
            if not is_weight(state, path):
                continue
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
        try:
            with self.program.changed(lines), no_longer_than(LONGEST_RUN):
                parts = {self.program.part_at(line) for line in lines}
                ran = {n for part in parts if part for n in part.lines}
                anew = not ran.isdisjoint(self.constructor)
                if anew and self.make is None:
                    return None, 0
                module = self.rebuilt() if anew else self.as_it_was()
                return self.accept(module), None
        except Endless:
            return None, 0
        except Exception as error:
            place = trace_of(error, self.case.file.path)
            return None, place.tb_lineno if place is not None else 0


class Endless(BaseException):
    """A change has made a run much longer; no Exception, so that none catches it."""


LONGEST_RUN = 1.5  # seconds of the processor, for a run with a change
LONGEST_SEARCH = 12.0  # seconds by the clock, for all of them


@contextlib.contextmanager
def no_longer_than(seconds: float) -> Iterator[None]:
    """Raise Endless inside after so many seconds of the processor, where it can be."""
    if not hasattr(signal, "setitimer") or not in_main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        raise Endless

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, 0.2)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


# ---------------------------------------------------------------- the search


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
    made = singles + [edit for edit in together if edit is not None]
    return sorted(made, key=lambda edit: (turn_of(edit, shop), edit.line))


def turn_of(edit: Edit, shop: Workshop) -> float:
    """When a change is tried: those of the line that raised are before others."""
    return price(edit, shop.case.seen) - 0.3 * (edit.line == shop.raised)


def price(edit: Edit, seen: int | None) -> float:
    """What a change costs: less at the line where the numbers leave the right path."""
    return edit.cost + 0.15 * (edit.line != seen) + len(edit.puts[0][1]) / 1000


def joined(group: list[Edit]) -> Edit | None:
    """The same change at several statements of the same form, as one."""
    puts = tuple(put for edit in group for put in edit.puts)
    places = [span for span, _ in puts]
    if len({edit.line for edit in group}) < len(group) or len(set(places)) < len(
        places
    ):
        return None
    return Edit(group[0].cost + 0.3, group[0].kind, puts)


def find(
    case: Case,
    budget: float = 3.0,
    accept: Accept | None = None,
    confirm: Callable[[nn.Module], bool] = lambda module: True,
    spare: Callable[[Repair], bool] = lambda repair: False,
    prefer: int | None = None,
) -> list[Repair]:
    """The changes that mend a module, the best first; none if none was found.

    confirm: what must hold of the best as well, as the whole examination does.
    spare: what is no repair, whatever it proves. prefer: a line, where several mend it.

    accept: what must hold, other than a right output; see RightOutput.
    budget: seconds of this process.
    """
    end = time.process_time() + budget
    accept = accept or right_output(case)
    shop = Workshop(case, accept)
    shop.watch()
    outward = shop.program.reaches_out(shop.seen)
    if outward:
        case.not_tried.append(f"a change that mends it: the file has {outward}")
        return []
    search = Search(shop, end, time.monotonic() + LONGEST_SEARCH)
    singles = candidates(shop, width_of(case))
    search.through(singles)
    if not search.found:
        search.through(pairs(singles))
    if not search.found and shop.raised is not None:
        search.through(onward(shop, search.further, width_of(case)))
    found = [repair for repair in search.found if not spare(repair)]
    found.sort(key=lambda r: (prefer not in dict(r.changes), r.cost, r.line))
    shop.accept = lambda module: Proof(None, 0.0) if confirm(module) else None
    while found and shop.attempt(dict(found[0].changes))[0] is None:
        found.pop(0)
    return found


@dataclass
class Search:
    """Changes tried one after the other, and what they proved."""

    shop: Workshop
    end: float  # of the time, by time.process_time
    last: float  # and by time.monotonic
    found: list[Repair] = field(default_factory=list)
    tried: set[tuple] = field(default_factory=set)
    further: list[tuple[int, Edit]] = field(default_factory=list)  # where they raise

    def through(self, changes: Iterable[Edit]) -> None:
        """Try these, up to those that cost much more than the best that was found."""
        case = self.shop.case
        for edit in changes:
            best = min((r.cost for r in self.found), default=float("inf"))
            cost = price(edit, case.seen)
            turn = turn_of(edit, self.shop)
            late = time.process_time() > self.end or time.monotonic() > self.last
            if late or turn > best + MORE:
                return
            lines = applied(self.shop.program.lines, edit)
            key = tuple(sorted(lines.items()))
            if key in self.tried:
                continue
            self.tried.add(key)
            proof, raised = self.shop.attempt(lines)
            if proof is not None:
                cost += 1.5 * (not proof.usual) + 0.6 * (not proof.trains)
                gap = before(case, proof)
                self.found.append(Repair(key, edit.kind, cost, proof, gap))
            elif raised != self.shop.raised and raised != 0:
                self.further.append((raised or 10**9, edit))


def pairs(singles: list[Edit]) -> list[Edit]:
    """Two names exchanged for others at once, in statements of one form."""
    groups: dict[str, list[Edit]] = {}
    for edit in singles:
        if edit.like and edit.like[2] == "other_names" and edit.cost < 1.3:
            groups.setdefault(edit.like[0], []).append(edit)
    return both(
        pair for row in groups.values() for pair in itertools.combinations(row, 2)
    )


ARRANGED = {"moved_first", "sizes_in_another_order", "other_axes", "left_out"}


def onward(shop: Workshop, further: list[tuple[int, Edit]], D: int) -> Iterator[Edit]:
    """A change after which it raises later or no more, and one at a later line."""
    far = sorted(further, key=lambda row: (-row[0], len(row[1].puts) == 1, row[1].cost))
    for _, one in far[:15]:
        lines, seen = applied(shop.program.lines, one), Seen()
        with contextlib.suppress(Exception), shop.program.changed(lines):
            shop.run_watched(seen)
        last = max(span[2] for span, _ in one.puts)
        rows = [
            (one, other)
            for spot in spots(shop.program, seen, None, shop.case.T, D)
            if spot.statement.lineno > last
            for other in edits(spot)
            if other.cost <= 1.25 and other.like[2] in ARRANGED
        ]
        yield from both(rows)


def both(rows: Iterable[tuple[Edit, Edit]]) -> list[Edit]:
    """Two changes as one, where they do not overlap; the cheapest first."""
    made = []
    for one, other in rows:
        spans = sorted(span for edit in (one, other) for span, _ in edit.puts)
        apart = all(
            (a[2], a[3]) <= (b[0], b[1]) and a != b
            for a, b in itertools.pairwise(spans)
        )
        if apart:
            cost = one.cost + other.cost
            made.append(Edit(cost, one.kind, (*one.puts, *other.puts)))
    return sorted(made, key=lambda edit: (edit.cost, edit.line))


def width_of(case: Case) -> int:
    """The features of a head."""
    judged = case.judgement
    return judged.heads.D if judged is not None else case.sizes.D


def before(case: Case, proof: Proof) -> float:
    """How far the output was off without the change."""
    try:
        out = trial_of(case, case.x, 0).output(case.copied())
    except Exception:
        return float("inf")
    if out is None or proof.expected is None or out.shape != proof.expected.shape:
        return float("inf")
    return float((out.double() - proof.expected).abs().max())
