"""A cache of keys and values: a text in parts must give what it gives at once."""

import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from steps.debugger.arguments import plain
from steps.debugger.calls import ANGLES, POSITIONS, STARTS, always, parameters_of
from steps.debugger.case import Case
from steps.debugger.result import Diagnosis
from steps.debugger.run import Node, Run, same_numbers, state_of
from steps.debugger.settings.runs import off
from steps.pytorch import nn, torch
from steps.walk.recorder import tensors_in

FAR = 1e-3  # of the largest number: no rounding is
CACHE = re.compile(r"(?!use|return).*(cache|past)\w*|kvs?|(kv)?state|mems?|memory")
SWITCH = re.compile(r"(use|return|output|with)_?(kv|cache|past|present)\w*")


@dataclass
class Step:
    """One way to give forward a text in parts."""

    words: str
    first: Callable[[], Any]  # what the parameter is given with the first part
    name: str = ""  # of that parameter, if there is one
    fed_back: bool = False  # what forward returns beside its output
    switches: tuple[str, ...] = ()  # parameters that are True throughout
    counts: str = ""  # the parameter for the number of tokens before


@dataclass
class Driven:
    """What came of it."""

    out: torch.Tensor  # of all parts, one after the other
    last: Run | None  # the recorded run of one part
    begin: int  # the first token of that part


def in_parts(case: Case) -> Diagnosis | str | None:
    """Prefill and then a token at a time, and in two parts, against all at once."""
    whole = case.turned(case.run.output)
    plain_case = case.x.dim() == 3 and not case.tokens_first
    if case.asked_call is not None or not plain_case or case.judgement is None:
        return None
    if not case.causal or case.mask is not None or whole is None:
        return None
    if {plain(name) for name in case.way.made_up} & {*ANGLES, *POSITIONS}:
        return None
    for step in steps(case):
        found = [(parts, driven(case, step, parts)) for parts in cuts(case.T)]
        if any(one is None for _, one in found):
            continue
        case.given |= {step.name, step.counts, *step.switches}
        said = f"a text in parts, {step.words}"
        for parts, one in found:
            if one is None or off(one.out, whole) <= FAR:
                continue
            fault = parted(case, step, parts, off(one.out, whole), whole)
            if fault is None:
                case.not_tried.append(
                    "several tokens at once after a cache: no mask is made for them "
                    "(--call)"
                )
                return "a text in parts of one token, " + step.words
            return fault
        return said
    return None


def cuts(T: int) -> list[list[int]]:
    """The sizes of the parts: all at once, then one by one, and two."""
    half = T // 2 + 1
    return [[T], [half, *[1] * (T - half)], [half, T - half]]


def steps(case: Case) -> Iterator[Step]:
    """The ways in which forward may go on from the tokens before."""
    parameters = parameters_of(case.module)
    letters = {p.name: plain(p.name) for p in parameters}
    optional = [p for p in parameters if p.default is None or p.name in nothing(case)]
    caches = [p for p in optional if CACHE.fullmatch(letters[p.name])]
    switches = tuple(
        p.name
        for p in parameters
        if isinstance(p.default, bool) and SWITCH.fullmatch(p.name)
    )
    counts = next((n for n, said in letters.items() if said in STARTS), "")
    for p in caches:
        for made in cache_classes(case):
            words = f"{p.name}={made.__name__}()"
            yield Step(words, made, p.name, counts=counts)
        told = tuple(s for s in switches if s != p.name)
        for on in {told: None, (): None}:
            words = f"{p.name} as it was returned"
            yield Step(words, lambda: None, p.name, True, on, counts)
    if not caches and (switches or counts):
        words = ", ".join(
            [*(f"{name}=True" for name in switches), *filter(None, [counts])]
        )
        yield Step(words, lambda: None, switches=switches, counts=counts)


def nothing(case: Case) -> set[str]:
    """The wanted parameters that were given None."""
    return {
        name
        for name in case.way.made_up
        if case.way.shown.get(name, "").endswith("=None")
    }


def cache_classes(case: Case) -> list[type]:
    """Classes of the file that are caches, by their names, made without arguments."""
    forward = inspect.unwrap(type(case.module).forward)
    names = getattr(forward, "__globals__", {})
    found = []
    for value in list(names.values()):
        if not isinstance(value, type) or "cache" not in value.__name__.lower():
            continue
        if value.__module__ != type(case.module).__module__:
            continue
        try:
            value()
        except Exception:
            continue
        if not issubclass(value, nn.Module):
            found.append(value)
    return found


def driven(
    case: Case, step: Step, parts: list[int], record: int | None = None
) -> Driven | None:
    """The outputs of a text in these parts; None where it cannot be driven so.

    record: the part that is recorded.
    """
    own = not step.name  # the module keeps its own state
    module = case.copied() if own else case.module
    state, begin, outs = step.first(), 0, []
    held = contents(state_of(module)) if own else []
    run, start = None, 0
    for number, size in enumerate(parts):
        x = case.x[:, begin : begin + size].contiguous()
        inner = with_step(case, step, state, begin)
        try:
            if record == number:
                run, start = inner.record(x, module), begin
                result = run.result
                if run.error is not None:
                    return None
            else:
                with torch.no_grad():
                    result = inner.forward(module, x)
        except Exception:
            return None
        begin += size
        tensors = list(tensors_in(result))
        if not tensors or tensors[0].dim() != 3:
            return None
        outs.append(tensors[0])
        if step.fed_back:
            state = beside(result, begin)
        kept = contents(state_of(module)) if own else contents(state)
        grown = any(begin in shape for shape, _ in kept)
        if kept == held or not (own or grown):
            return None  # nothing is kept
    return Driven(torch.cat(outs, 1), run, start)


def with_step(case: Case, step: Step, state: Any, begin: int) -> Case:
    more: dict[str, Callable] = {name: always(True) for name in step.switches}
    if step.name:
        more[step.name] = always(state)
    if step.counts:
        more[step.counts] = always(begin)
    return case.giving(**more)


def beside(result: Any, tokens: int) -> Any:
    """What forward returns beside its output that holds so many tokens."""
    if isinstance(result, dict):
        result = tuple(result.values())
    if not isinstance(result, tuple | list):
        return None
    for part in result[1:]:
        shapes = [shape for shape, _ in contents(part)]
        pair = len(shapes) > 1 or (shapes and shapes[0][0] == 2)
        if pair and all(tokens in shape for shape in shapes):
            return part
    return None


def contents(state: Any) -> list[tuple[tuple[int, ...], float]]:
    """Shape and sum of each tensor that a state holds."""
    if hasattr(state, "__dict__") and not isinstance(state, torch.Tensor):
        state = vars(state)
    return [
        (tuple(tensor.shape), float(tensor.double().sum()))
        for tensor in tensors_in(state)
        if not tensor.is_meta
    ]


# ---------------------------------------------------------------- where it goes wrong


def parted(
    case: Case, step: Step, parts: list[int], gap: float, whole: torch.Tensor
) -> Diagnosis | None:
    """The fault of a text in parts; None where no mask is made for several tokens."""
    number, before = 0, 0
    one: Driven | None = None
    for number in range(len(parts)):
        one = driven(case, step, parts, number)
        size = parts[number]
        assert one is not None
        got = one.out[:, before : before + size]
        if off(got, whole[:, before : before + size]) > FAR:
            break
        before += size
    assert one is not None
    assert one.last is not None
    node, why = first_off(case.run, one.last, one.begin, parts[number], case.T)
    if number and parts[number] > 1 and not makes_mask(one.last, parts[number]):
        return None
    shown = " and ".join(map(str, parts)) if len(parts) < 3 else "one by one"
    shown = {1: "all at once"}.get(len(parts), shown)
    place = f"tokens {one.begin + 1} to {one.begin + parts[number]}"
    return case.file.fault(
        node,
        "cache",
        f"{case.T} tokens given {shown}, {step.words}: the output of {place} is "
        f"{gap:.2g} of the largest number off what it is without a cache. {why}",
        "an output that depends on how the text is cut",
    )


MISSING = "This operation, of a run without a cache, is left out."


def makes_mask(run: Run, size: int) -> bool:
    """Whether a part of several tokens is given a mask, right or wrong."""
    for node in run.nodes:
        if "scaled_dot_product" in node.entry.function and node.entry.call:
            _, args, kwargs = node.entry.call
            if len(args) > 3 or kwargs.get("is_causal") is True:
                return True
            if kwargs.get("attn_mask") is not None:
                return True
        for table in [t for t, _ in node.constants] if node.uses_x else ():
            rows = [n for n in table.shape if n != 1][-2:-1]
            if rows == [size] and 1 < table.unique().numel() <= 3:
                return True
    return False


def first_off(
    whole: Run, part: Run, begin: int, size: int, T: int
) -> tuple[Node | None, str]:
    """The operation at which a part's numbers leave those of the whole, and how."""
    twins = dict(keyed(whole))
    seen = 0
    for key, node in keyed(part):
        if not node.value.is_floating_point():
            continue
        twin = twins.get(key)
        if twin is None:
            if out_of_order(whole, node, begin, size, T):
                return node, "The tokens are in another order here."
            continue
        expected = part_of(twin.value, node.value, begin, size, T)
        if expected is None:
            continue
        if alike(node.value, expected):
            seen = twin.index
            continue
        present = dict(keyed(part))
        for other, left in keyed(whole):
            if seen < left.index < twin.index and other not in present:
                return left, MISSING
        return node, "Here the numbers part."
    return None, ""


def keyed(run: Run) -> Iterator[tuple[tuple, Node]]:
    """The operations on x by line, text and how often these came before."""
    counts: Counter = Counter()
    for node in run.nodes:
        key = (node.line, node.entry.expression)
        counts[key] += 1
        if node.uses_x:
            yield (*key, counts[key]), node


def part_of(
    whole: torch.Tensor, part: torch.Tensor, begin: int, size: int, T: int
) -> torch.Tensor | None:
    """The numbers of the whole that a part of the text must have."""
    if whole.dim() != part.dim():
        return None
    for d, (full, got) in enumerate(zip(whole.shape, part.shape, strict=True)):
        if full == got:
            continue
        if full == T and got == size:
            whole = whole.narrow(d, begin, size)
        elif full == T and got == begin + size:
            whole = whole.narrow(d, 0, got)
        else:
            return None
    return whole


def out_of_order(whole: Run, node: Node, begin: int, size: int, T: int) -> bool:
    """Whether an operation has the numbers of one of the whole run in another order."""
    wanted = (part_of(n.value, node.value, begin, size, T) for n in whole.nodes)
    same = [w for w in wanted if w is not None and same_numbers(w, node.value)]
    return bool(same) and not any(alike(w, node.value) for w in same)


def alike(one: torch.Tensor, two: torch.Tensor) -> bool:
    return off(one.clamp(-1e6, 1e6), two.clamp(-1e6, 1e6)) <= 1e-5
