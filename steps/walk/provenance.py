"""Which elements an element came from: exact maps between the tensors of a record.

Nothing here knows what an operation is called. The maps are measured on the recorded
call itself, made again on other numbers:

    rearranged, copied  run on index numbers: each result is the place that it came from
    computed            run with one input element disturbed: what changes came from it

A map is a small dict, ready for JSON, about one source tensor `i` of a result:

    {"i", "same": 1, "o", "s"}         result element e is source element o + sum(e * s)
    {"i", "same": 1, "box", "o", "s"}  the same, for results inside the box [low, high)
    {"i", "same": 1, "step", "rows"}   the last axis from rows[r] on, in steps; -1: none
    {"i", "same": 1, "list"}           one source element for each result; -1: none
    {"i", "d"}                         source axis k has the index of result axis d[k];
                                       ALL: every index of it, ZERO: its only one
    {"i", "d", "loose": 1}             at most those: what was measured is no rectangle

Source elements are counted in row-major order of the source's own shape.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import product
from typing import Any

from steps.pytorch import torch
from steps.walk.recorder import Entry, tensors_in

ALL, ZERO = -1, -2
LARGE = 2**26  # elements; nothing larger is measured
PROBES = ((4096, 24), (LARGE, 3))  # input elements disturbed, by elements of the larger


def links(
    entry: Entry, sources: Sequence[tuple[int, torch.Tensor]]
) -> list[dict[str, Any]]:
    """The maps from `entry` to those of its call's input tensors that are known.

    entry: of a `Recorder(keep_calls=True)`. sources: (the number to use, tensor).
    """
    if entry.call is None or not sources or entry.tensor.numel() == 0:
        return []
    if max(t.numel() for t in (entry.tensor, *(t for _, t in sources))) > LARGE:
        return []
    with torch._C.DisableTorchFunction(), torch.no_grad():
        if entry.origin != "computed":
            found = same(entry, sources)
            if found is not None:
                return found
        return parts(entry, sources)


def again(
    entry: Entry, change: Callable[[torch.Tensor], torch.Tensor], draws: bool = True
) -> torch.Tensor:
    """The recorded call's result on changed tensors, dropout drawing alike.

    draws: whether the call may move the generator, which takes time to keep as it is.
    """
    assert entry.call is not None
    func, args, kwargs = entry.call

    def put(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return change(value)
        if isinstance(value, tuple | list):
            return type(value)([put(part) for part in value])
        if isinstance(value, dict):
            return {key: put(part) for key, part in value.items()}
        return value

    kept = torch.random.fork_rng(devices=[]) if draws else nullcontext()
    with kept:
        if draws:
            torch.default_generator.manual_seed(0)
        given = put(args)
        result = func(*given, **put(kwargs))
    results = list(tensors_in(result)) or list(tensors_in(given))
    return results[entry.index or 0]


def laid_out_as(tensor: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """The numbers with the strides of `tensor`: view must succeed or fail as it did."""
    strides = [
        0 if size == 1 else stride
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    ]
    if any(s == 0 and n > 1 for s, n in zip(strides, tensor.shape, strict=True)):
        return numbers  # expanded: no place of its own for each element
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=numbers.dtype)
    return made.copy_(numbers)


def same(
    entry: Entry, sources: Sequence[tuple[int, torch.Tensor]]
) -> list[dict[str, Any]] | None:
    """Maps of element identity; None where the call cannot run on index numbers."""
    sources = [(at, t) for at, t in sources if t.dtype == entry.tensor.dtype]
    if not sources:
        return None
    first, firsts = 0, []
    for _, tensor in sources:
        firsts.append(first)
        first += tensor.numel()

    def numbered(tensor: torch.Tensor) -> torch.Tensor:
        for start, (_, other) in zip(firsts, sources, strict=True):
            if tensor is other:
                count = torch.arange(start, start + tensor.numel(), dtype=torch.float64)
                return laid_out_as(tensor, count.view(tensor.shape))
        if tensor.dtype == entry.tensor.dtype:
            return torch.full_like(tensor, -1.0, dtype=torch.float64)
        return tensor

    try:
        places = again(entry, numbered).detach()
    except (RuntimeError, TypeError, IndexError):
        return None
    told = torch.cat([tensor.detach().flatten() for _, tensor in sources])
    if not are_places(places, entry, told):
        return None
    whole = places.round()
    found = []
    for start, (number, tensor) in zip(firsts, sources, strict=True):
        inside = (whole >= start) & (whole < start + tensor.numel())
        if bool(inside.any()):
            local = torch.where(inside, whole - start, -1.0).long()
            found.append({"i": number, "same": 1, **formula(local)})
    return found


def are_places(places: torch.Tensor, entry: Entry, told: torch.Tensor) -> bool:
    """Whether a result on index numbers is places in `told`, or -1, and its numbers
    are there; they are not where it chose by value, as max does."""
    if tuple(places.shape) != entry.shape or places.dtype != torch.float64:
        return False
    whole = places.round()
    if not torch.equal(whole, places) or whole.min() < -1 or whole.max() >= len(told):
        return False
    return torch.equal(told[whole.long()][whole >= 0], entry.numbers()[whole >= 0])


def formula(places: torch.Tensor) -> dict[str, Any]:
    """The shortest description of a tensor of places; -1 is no place."""
    inside = places >= 0
    box = []
    for axis in range(places.dim()):
        others = [a for a in range(places.dim()) if a != axis]
        hits = inside.sum(dim=others) if others else inside.long()
        at = hits.nonzero().flatten().tolist()
        box.append([at[0], at[-1] + 1])
    cut = places[tuple(slice(low, high) for low, high in box)]
    start = int(cut.flatten()[0])
    strides = []
    for axis, size in enumerate(cut.shape):
        strides.append(int(cut.select(axis, 1).flatten()[0]) - start if size > 1 else 0)
    if torch.equal(cut, straight(start, strides, cut.shape)):
        start -= sum(
            low * stride for (low, _), stride in zip(box, strides, strict=True)
        )
        made: dict[str, Any] = {"o": start, "s": strides}
        if cut.shape != places.shape:
            made["box"] = box
        return made
    rows = places.reshape(-1, places.shape[-1])
    step = int(rows[rows[:, 0] >= 0][:1].diff()[0, 0]) if places.shape[-1] > 1 else 1
    along = rows[:, :1] + step * torch.arange(places.shape[-1])
    if torch.equal(rows, torch.where(rows[:, :1] >= 0, along, -1)):
        return {"step": step, "rows": rows[:, 0].tolist()}
    return {"list": places.flatten().tolist()}


def straight(start: int, strides: Sequence[int], shape: Sequence[int]) -> torch.Tensor:
    """start + sum(index * stride) for every index of the shape."""
    total = torch.full(tuple(shape), start)
    for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        view = [1] * len(shape)
        view[axis] = size
        total = total + (torch.arange(size) * stride).view(view)
    return total


def parts(
    entry: Entry, sources: Sequence[tuple[int, torch.Tensor]]
) -> list[dict[str, Any]]:
    """Maps of dependence, source by source."""
    generator = torch.Generator().manual_seed(1)
    stand_ins: dict[int, torch.Tensor] = {}
    changes = entry.in_place or entry.function.endswith("_")

    def stand_in(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in stand_ins:
            numbers = tensor
            if tensor.is_floating_point():
                numbers = torch.rand(
                    tensor.shape, generator=generator, dtype=torch.float32
                )
                numbers = laid_out_as(tensor, numbers + 0.5)
            stand_ins[id(tensor)] = numbers
        return stand_ins[id(tensor)].clone() if changes else stand_ins[id(tensor)]

    found = []
    try:
        before = again(entry, stand_in)
        draws = moves_generator(entry, stand_in)
        for number, source in sources:
            if source.is_floating_point() or source.dtype == torch.bool:
                link = dependence(entry, source, before, stand_in, draws)
                if link is not None:
                    found.append({"i": number, **link})
    except (RuntimeError, TypeError, IndexError, NotImplementedError):
        return [{"i": n, "d": [ALL] * t.dim(), "loose": 1} for n, t in sources]
    return found


def dependence(
    entry: Entry,
    source: torch.Tensor,
    before: torch.Tensor,
    stand_in: Callable[[torch.Tensor], torch.Tensor],
    draws: bool,
) -> dict[str, Any] | None:
    """How the result depends on one source; None when disturbing it changes nothing."""
    work = max(source.numel(), before.numel())
    most = next(probes for limit, probes in PROBES if work <= limit)
    seen: list[tuple[tuple[int, ...], torch.Tensor]] = []
    for place in places(source.shape, most):
        for number in (torch.nan, 0.0):  # a comparison may not tell nan from a number

            def disturbed(
                tensor: torch.Tensor, place: tuple = place, number: float = number
            ) -> torch.Tensor:
                made = stand_in(tensor)
                if tensor is source:
                    made = made.clone()
                    made[place] = ~made[place] if made.dtype == torch.bool else number
                return made

            after = again(entry, disturbed, draws)
            changed = (after != before) & ~((after != after) & (before != before))
            if bool(changed.any()):
                seen.append((place, changed))
                break
    if not seen:
        return None
    shape = tuple(before.shape)
    ends = []  # per disturbed place, the first and last index changed on every axis
    for place, changed in seen:
        hit = changed.nonzero()
        ends.append((place, hit.amin(dim=0).tolist(), hit.amax(dim=0).tolist()))
    axes: list[int] = []
    for k, size in enumerate(source.shape):
        fits = [
            axis
            for axis in range(len(shape))
            if shape[axis] == size
            and axis not in axes
            and all(low[axis] == place[k] == high[axis] for place, low, high in ends)
        ]
        # of several that fit the one as far from the end, as broadcasting counts
        fits.sort(key=lambda axis: abs((len(shape) - axis) - (source.dim() - k)))
        axes.append(ZERO if size == 1 else fits[0] if fits else ALL)
    loose = False
    blocked = constant(before)
    for place, changed in seen:
        where = [slice(None)] * len(shape)
        for k, axis in enumerate(axes):
            if axis >= 0:
                where[axis] = slice(place[k], place[k] + 1)
        expected = torch.zeros_like(changed)
        expected[tuple(where)] = True
        loose = loose or bool((expected & ~changed & ~blocked).any())
    return {"d": axes, **({"loose": 1} if loose else {})}


def moves_generator(
    entry: Entry, change: Callable[[torch.Tensor], torch.Tensor]
) -> bool:
    """Whether the recorded call draws random numbers."""
    with torch.random.fork_rng(devices=[]):
        state = torch.default_generator.get_state()
        again(entry, change, draws=False)
        return not torch.equal(state, torch.default_generator.get_state())


def constant(before: torch.Tensor) -> torch.Tensor:
    """Elements that are 0 or minus infinity: set by a mask, from no number."""
    if not before.is_floating_point():
        return torch.zeros(before.shape, dtype=torch.bool)
    return (before == 0) | (before == -torch.inf)


def places(shape: Sequence[int], most: int) -> list[tuple[int, ...]]:
    """Up to `most` indices of a shape: all of them, or the corners and some between."""
    total = 1
    for size in shape:
        total *= size
    if total <= most:
        return list(product(*(range(size) for size in shape)))
    generator = torch.Generator().manual_seed(2)
    chosen = {tuple(0 for _ in shape), tuple(size - 1 for size in shape)}
    for _ in range(most - 2):
        at = [int(torch.randint(size, (), generator=generator)) for size in shape]
        chosen.add(tuple(at))
    return sorted(chosen)
