"""Every output that right attention over a module's own weights can have."""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from steps.debugger.roles import ROLE
from steps.pytorch import torch

NEAR = 1e-6  # of the largest number: float64 but for float32 buffers on the way
PACKED = re.compile(
    r"(?:to|w|in|c|fc|lin|proj|x|a)?(qkv|kqv|qvk|kvq|vqk|vkq|kv|vk|qk)s?"
)


@dataclass(frozen=True)
class Reading:
    """Which weights are queries, keys, values and output, and how they are arranged."""

    roles: tuple[tuple[str, ...], ...]  # paths: of q, k and v, or of one packed layer
    layout: str  # of packed features, such as "3HD"; "DH" for every H-th feature
    H: int
    D: int
    causal: bool
    out: tuple[str, ...] = ()  # paths of the output layer, if any
    around: str = ""  # what stands around it: sums and norms
    usual: bool = True  # False: right, and a reading to be held only for want of others


@dataclass(frozen=True, eq=False)
class Unit:
    """Numbers that one weight, or one for each head, makes of x."""

    paths: tuple[str, ...]
    value: torch.Tensor  # (B, T, F)
    letters: str  # of its name: "q", "k", "v", "kv", "qkv", or "" for none
    side: int  # the weight's axis that reads x


@dataclass
class Given:
    """What a module was given, arranged as attention's own axes."""

    x: torch.Tensor  # (B, T, C)
    source: torch.Tensor | None = None  # (B, S, C'), of which keys and values are made
    past: tuple[torch.Tensor, ...] = ()  # keys and values (B, H, S, D) before its own
    padding: torch.Tensor | None = None  # (B, S) of two numbers, the larger one seen
    heads: tuple[torch.Tensor, ...] = ()  # q, k and v themselves, (B, T, H, D)
    bases: tuple[float, ...] = ()  # of rotary positions, if there may be any
    window: int = 0  # how many tokens a causal one sees, itself included; 0: all
    thin: Callable[[torch.Tensor], torch.Tensor] | None = None  # in dropout's place


@dataclass
class Heads:
    """Queries, keys and values of every head under one reading."""

    q: torch.Tensor  # (B, H, T, D)
    k: torch.Tensor  # (B, H, S, D)
    v: torch.Tensor
    roles: tuple[tuple[str, ...], ...]
    layout: str = ""
    usual: bool = True


def letters_of(path: str) -> str:
    """The roles that a path's last names speak of, in their order, such as "kv"."""
    names = [n for n in path.split(".") if not n.isdigit()]
    names = [n for n in names if n not in ("weight", "bias")] or names
    for name in names[:-3:-1]:
        tokens = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
        found = ""
        for token in map(str.lower, tokens):
            packed, role = PACKED.fullmatch(token), ROLE.fullmatch(token)
            found += packed[1] if packed else role[1][0] if role else ""
        if found:
            return "".join(dict.fromkeys(found))
    return ""


def flat(weight: torch.Tensor) -> torch.Tensor:
    """A weight without the 1-wide axes of a convolution."""
    while weight.dim() > 2 and weight.shape[-1] == 1:
        weight = weight.squeeze(-1)
    return weight.detach().double()


def bias_of(path: str, weights: dict[str, torch.Tensor], F: int) -> torch.Tensor | None:
    """The bias (F,) that belongs to a weight, by its name."""
    own = weights.get(re.sub("weight$", "bias", path)) if "weight" in path else None
    if own is None:
        letters = letters_of(path)
        fitting = [
            t
            for p, t in weights.items()
            if letters and p != path and letters_of(p) == letters and t.dim() == 1
        ]
        own = fitting[0] if len(fitting) == 1 else None
    return None if own is None or own.numel() != F else own.detach().double().flatten()


def units(x: torch.Tensor, weights: dict[str, torch.Tensor]) -> list[Unit]:
    """What each weight, or list of a weight a head, can make of x (B, T, C)."""
    found: list[Unit] = []
    lists: dict[tuple[str, int], list[Unit]] = {}
    for path, tensor in weights.items():
        weight = flat(tensor)
        for side in range(weight.dim()) if 2 <= weight.dim() <= 4 else ():
            square = weight.dim() == 2 and weight.shape[0] == weight.shape[1]
            layer = path.endswith(".weight") and square and not side
            if weight.shape[side] != x.shape[-1] or layer:
                continue  # a layer's weight reads x by its second axis
            value = torch.tensordot(x, weight, ([2], [side])).flatten(2)
            bias = bias_of(path, weights, value.shape[-1])
            value = value if bias is None else value + bias
            unit = Unit((path,), value, letters_of(path), side)
            key = re.sub(r"\.\d+", ".#", path, count=1), side
            lists.setdefault(key, []).append(unit)
            if weight.dim() > 2 and weight.shape[0] in (2, 3) and side:
                whole = weight.shape[0]
                for n, part in enumerate(value.chunk(whole, -1)):
                    found.append(Unit((f"{path}[{n}]",), part, "", side))
    for group in lists.values():
        same = len({unit.value.shape for unit in group}) == 1
        if len(group) > 1 and same:
            paths = tuple(unit.paths[0] for unit in group)
            value = torch.cat([unit.value for unit in group], -1)
            found.append(replace(group[0], paths=paths, value=value))
        found += group
    return found


def by_roles(
    found: list[Unit], others: list[Unit]
) -> Iterator[tuple[Unit, Unit, Unit]]:
    """Three units as queries, keys and values: by name if that is complete."""
    named = {
        r: [u for u in (found if r == "q" else others) if u.letters == r] for r in "qkv"
    }
    if all(named.values()):
        yield from itertools.product(*named.values())
        return
    left, right = ([u for u in us if len(u.letters) < 2] for us in (found, others))
    for three in itertools.product(left, right, right):
        if all(u.letters in ("", r) for u, r in zip(three, "qkv", strict=True)):
            yield three


def heads_of(value: torch.Tensor, H: int) -> torch.Tensor:
    """(B, T, H * D) as (B, H, T, D)."""
    return value.unflatten(-1, (H, -1)).transpose(1, 2)


def separate(found: list[Unit], others: list[Unit], H: int) -> Iterator[Heads]:
    """Readings with three layers, or three lists of them."""
    for q, k, v in by_roles(found, others):
        F, few = q.value.shape[-1], k.value.shape[-1]
        if len({q.side, k.side, v.side}) > 1 or len({q.paths, k.paths, v.paths}) < 3:
            continue
        if F % H or few != v.value.shape[-1] or few % (F // H) or F % few:
            continue
        groups = few // (F // H)
        roles = q.paths, k.paths, v.paths
        lists_ = found, others, others
        rows = zip((q, k, v), lists_, strict=True)
        places = [us.index(u) for u, us in rows if not u.letters]
        usual = places == sorted(places)  # without names, as they were made
        yield Heads(
            heads_of(q.value, H),
            heads_of(k.value, groups).repeat_interleave(H // groups, 1),
            heads_of(v.value, groups).repeat_interleave(H // groups, 1),
            roles,
            usual=usual,
        )
        if groups == H > 1 and len(q.paths) == 1:
            a, b, c = (u.value.unflatten(-1, (-1, H)).movedim(-1, 1) for u in (q, k, v))
            yield Heads(a, b, c, roles, "DH", usual=False)


def packed(found: list[Unit], others: list[Unit], H: int) -> Iterator[Heads]:
    """Readings with one layer for all three, or one for keys and values."""
    for unit in found if found is others else ():
        F = unit.value.shape[-1]
        if F % (3 * H) or len(unit.letters) in (1, 2):
            continue
        own = unit.letters or "qkv"
        for layout in ("3HD", "H3D", "HD3"):
            parts = parted(unit.value, layout, H, F // (3 * H))
            for order in map("".join, itertools.permutations("qkv")):
                q, k, v = (parts[order.index(r)] for r in "qkv")
                usual = order == own
                name = layout if order == "qkv" else f"{layout} {order}"
                yield Heads(q, k, v, (unit.paths,), name, usual)
    for one, both in itertools.product(found, others):
        F, two = one.value.shape[-1], both.value.shape[-1]
        if F % H or two % (2 * F // H) or two > 2 * F or one.letters not in ("", "q"):
            continue
        if one.paths != both.paths and len(both.letters) != 1:
            yield from pair_packed(one, both, H)
    alone = len({unit.paths for unit in found}) < 3  # it, and the output's
    for unit in found if found is others else ():
        if unit.letters or alone:
            yield from few_packed(unit, H)


def pair_packed(one: Unit, both: Unit, H: int) -> Iterator[Heads]:
    """Queries of one layer, keys and values of another, perhaps for fewer heads."""
    D = one.value.shape[-1] // H
    groups = both.value.shape[-1] // (2 * D)
    q, roles = heads_of(one.value, H), (one.paths, both.paths)
    if H % groups:
        return
    for layout, order in itertools.product(("2HD", "H2D", "HD2"), ("kv", "vk")):
        parts = parted(both.value, layout, groups, D)
        parts = parts.repeat_interleave(H // groups, 2)
        k, v = (parts[order.index(r)] for r in "kv")
        usual = order == (both.letters or "kv")
        name = layout if order == "kv" else f"{layout} {order}"
        yield Heads(q, k, v, roles, name, usual)


def few_packed(unit: Unit, H: int) -> Iterator[Heads]:
    """One layer: the queries of all heads, then keys and values of fewer."""
    F = unit.value.shape[-1]
    for groups in range(1, H):
        D = F // (H + 2 * groups)
        if H % groups or F % (H + 2 * groups) or len(unit.letters) in (1, 2):
            continue
        q, k, v = unit.value.split([H * D, groups * D, groups * D], -1)
        k, v = (heads_of(t, groups).repeat_interleave(H // groups, 1) for t in (k, v))
        yield Heads(heads_of(q, H), k, v, (unit.paths,), f"H+2*{groups}")


def parted(value: torch.Tensor, layout: str, H: int, D: int) -> torch.Tensor:
    """(B, T, n*H*D) in a layout as (n, B, H, T, D)."""
    many = next(c for c in layout if c.isdigit())
    sizes = {many: int(many), "H": H, "D": D}
    axes = [2 + layout.index(c) for c in (many, "H", "D")]
    parts = value.unflatten(-1, [sizes[c] for c in layout])
    return parts.permute(axes[0], 0, axes[1], 1, axes[2])


def joined(heads: Heads, causal: bool, given: Given) -> torch.Tensor:
    """Plain attention of every head, its heads joined: (B, T, H * D)."""
    q, k, v = heads.q, heads.k, heads.v
    if given.past:
        k, v = (
            torch.cat((old.to(new), new), 2)
            for old, new in zip(given.past, (k, v), strict=True)
        )
    scores = q @ k.mT * q.shape[-1] ** -0.5
    if causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool)
        ahead = k.shape[2] - q.shape[2]
        gone = future.tril(ahead - given.window) if given.window else ~future
        scores = scores.masked_fill(future.triu(1 + ahead) | gone, -torch.inf)
    if given.padding is not None:
        hidden = given.padding == given.padding.amin(1, keepdim=True)
        hidden &= given.padding != given.padding.amax()
        scores = scores.masked_fill(hidden[:, None, None], -torch.inf)
    weights = scores.softmax(-1)
    contexts = (weights if given.thin is None else given.thin(weights)) @ v
    order = (0, 2, 3, 1) if heads.layout == "DH" else (0, 2, 1, 3)
    return contexts.permute(order).flatten(2)


def matrices(weight: torch.Tensor, F: int) -> Iterator[torch.Tensor]:
    """A weight as matrices (F, E) by which joined heads can be multiplied."""
    weight = flat(weight)
    if weight.dim() == 3 and weight.shape[0] * weight.shape[1] == F:
        yield weight.flatten(0, 1)
    elif weight.dim() == 3 and weight.shape[1] * weight.shape[2] == F:
        yield weight.flatten(1).T
    elif weight.dim() == 2:
        if weight.shape[1] == F:
            yield weight.T
        if weight.shape[0] == F:
            yield weight


def projected(
    value: torch.Tensor,
    used: set[str],
    weights: dict[str, torch.Tensor],
    H: int,
) -> Iterator[tuple[tuple[str, ...], torch.Tensor]]:
    """Joined heads through each layer that is left; as they are where none is."""
    F = value.shape[-1]
    rest = {
        p: t
        for p, t in weights.items()
        if t.dim() > 1 and p not in used and not letters_of(p)
    }
    lists: dict[str, list[str]] = {}
    for path in rest:
        lists.setdefault(re.sub(r"\.\d+", ".#", path, count=1), []).append(path)
    some = False
    for paths in lists.values():
        if len(paths) == H > 1 and F // H in rest[paths[0]].shape:
            some = True
            made = summed(value, paths, weights, H)
            yield tuple(paths), made
            for bias in lone_biases(weights, made.shape[-1]):
                yield tuple(paths), made + bias
    for path, tensor in rest.items():
        for matrix in matrices(tensor, F):
            some, made = True, value @ matrix
            own = bias_of(path, weights, made.shape[-1])
            if own is not None:
                yield (path,), made + own
                continue
            yield (path,), made
            for bias in lone_biases(weights, made.shape[-1]):
                yield (path,), made + bias
    if not some:
        yield (), value


def lone_biases(weights: dict[str, torch.Tensor], E: int) -> Iterator[torch.Tensor]:
    """Parameters (E,) that belong to no layer: one may be the output's bias."""
    for path, tensor in weights.items():
        layer = re.sub("bias$", "weight", path)
        alone = layer == path or layer not in weights
        fits = tensor.dim() == 1 and tensor.numel() == E
        if fits and alone and not letters_of(path):
            yield tensor.detach().double()


def summed(
    value: torch.Tensor, paths: list[str], weights: dict[str, torch.Tensor], H: int
) -> torch.Tensor:
    """The sum over heads of each one's own output layer."""
    total = torch.zeros(())
    for part, path in zip(value.chunk(H, -1), paths, strict=True):
        total = total + part @ next(matrices(weights[path], part.shape[-1]))
        bias = bias_of(path, weights, total.shape[-1])
        total = total if bias is None else total + bias
    return total


def attend(
    given: Given,
    weights: dict[str, torch.Tensor],
    heads: Iterable[int],
    modes: Iterable[bool],
) -> Iterator[tuple[Reading, torch.Tensor]]:
    """Each reading and its output (B, T, E).

    heads: numbers of heads that it may have; modes: whether it is causal.
    """
    if given.heads:
        yield from bare(given, modes)
        return
    found = units(given.x.double(), weights)
    others = found
    if given.source is not None:
        others = units(given.source.double(), weights)
    for H in heads:
        for made in all_heads(given, found, others, H):
            if given.past and given.past[0].shape[1::2] != made.k.shape[1::2]:
                continue
            used = {path.split("[")[0] for paths in made.roles for path in paths}
            for causal in modes:
                value, D = joined(made, causal, given), made.q.shape[-1]
                for out, result in projected(value, used, weights, H):
                    yield (
                        Reading(
                            made.roles, made.layout, H, D, causal, out, "", made.usual
                        ),
                        result,
                    )


def all_heads(
    given: Given, found: list[Unit], others: list[Unit], H: int
) -> Iterator[Heads]:
    """Queries, keys and values in every arrangement, turned by position or not."""
    for made in itertools.chain(separate(found, others, H), packed(found, others, H)):
        D = made.q.shape[-1]
        for base, form in itertools.product(given.bases, ("halves", "pairs")):
            if D % 2 == 0:
                start = given.past[0].shape[2] if given.past else 0
                q, k = (turned(t, start, form, base) for t in (made.q, made.k))
                name = f"{made.layout} turned in {form}".strip()
                yield replace(made, q=q, k=k, layout=name)
        yield replace(made, usual=made.usual and not given.bases)


def turned(t: torch.Tensor, start: int, form: str, base: float) -> torch.Tensor:
    """Vectors (B, H, T, D) turned by their positions, from `start` on."""
    T, D = t.shape[-2:]
    rates = base ** -(torch.arange(0, D, 2, dtype=t.dtype) / D)
    angles = torch.arange(start, start + T)[:, None] * rates
    halves = form == "halves"
    a, b = t.chunk(2, -1) if halves else (t[..., 0::2], t[..., 1::2])
    c, s = angles.cos(), angles.sin()
    new = a * c - b * s, b * c + a * s
    return torch.cat(new, -1) if halves else torch.stack(new, -1).flatten(-2)


def bare(given: Given, modes: Iterable[bool]) -> Iterator[tuple[Reading, torch.Tensor]]:
    """Readings without weights, of queries, keys and values that were handed over."""
    q, k, v = (t.double().transpose(1, 2) for t in given.heads)
    made = Heads(q, k, v, ())
    H, D = made.q.shape[1::2]
    for causal in modes:
        value = joined(made, causal, given)
        for name, out in (("", value), ("HD", value.unflatten(-1, (H, D)))):
            yield Reading((), name, H, D, causal), out


def after_a_layer(
    given: Given, weights: dict[str, torch.Tensor]
) -> Iterator[tuple[Given, dict[str, torch.Tensor]]]:
    """What each layer makes of x first, and the weights that are left."""
    for unit in units(given.x.double(), weights):
        if not unit.letters and len(unit.paths) == 1:
            own = {unit.paths[0], re.sub("weight$", "bias", unit.paths[0])}
            rest = {path: t for path, t in weights.items() if path not in own}
            yield replace(given, x=unit.value), rest


@dataclass
class Outputs:
    """The outputs of every reading for one input, to be looked up by their numbers."""

    rows: dict[tuple[int, ...], list[tuple[Reading, torch.Tensor]]] = field(
        default_factory=dict
    )
    keys: dict[tuple[int, ...], torch.Tensor] = field(default_factory=dict)

    def add(self, reading: Reading, value: torch.Tensor) -> None:
        self.rows.setdefault(tuple(value.shape), []).append((reading, value))

    def find(self, output: torch.Tensor) -> dict[Reading, float]:
        """The readings that have this output, and the largest difference to each."""
        shape = tuple(output.shape)
        if shape not in self.rows or not output.is_floating_point():
            return {}
        if shape not in self.keys:  # a number for each, by which it is known
            sums = [(value * marks(shape)).sum() for _, value in self.rows[shape]]
            self.keys[shape] = torch.stack(sums)
        output = output.detach().double()
        near = NEAR * (1 + float(output.abs().max()))
        apart = (self.keys[shape] - (output * marks(shape)).sum()).abs()
        found: dict[Reading, float] = {}
        for place in (apart <= near * output.numel()).nonzero().flatten().tolist():
            reading, value = self.rows[shape][place]
            most = float((output - value).abs().max())
            if most <= near:
                found.setdefault(reading, most)
        return found


def marks(shape: tuple[int, ...]) -> torch.Tensor:
    """Fixed random numbers of a shape, to know a tensor by its product with them."""
    if shape not in MARKS:
        drawn = torch.Generator().manual_seed(5)
        MARKS[shape] = torch.randn(shape, generator=drawn, dtype=torch.float64)
    return MARKS[shape]


MARKS: dict[tuple[int, ...], torch.Tensor] = {}


Layer = Callable[[torch.Tensor], torch.Tensor]


def in_block(
    given: Given,
    weights: dict[str, torch.Tensor],
    heads: Iterable[int],
    modes: Iterable[bool],
    norms: Sequence[Layer],
    feed: Layer | None,
) -> Iterator[tuple[Reading, torch.Tensor]]:
    """Attention with norms, sums and a second layer around it, before or after.

    norms: the first is attention's; feed: the layer that follows, if any.
    """
    x = given.x.double()
    first, second = norms[0], norms[-1]
    for reading, y in attend(replace(given, x=first(x)), weights, heads, modes):
        if feed is None:
            yield replace(reading, around="norm"), y
        if y.shape == x.shape:
            y = x + y
            y = y if feed is None else y + feed(second(y))
            yield replace(reading, around="sum of norm"), y
    for reading, y in attend(given, weights, heads, modes):
        if feed is None:
            yield reading, y
            yield (
                replace(reading, around="then norm"),
                first(y) if y.shape == x.shape else y,
            )
        if y.shape == x.shape:
            y = first(x + y)
            y = y if feed is None else second(y + feed(y))
            yield replace(reading, around="norm of sum"), y


def with_sum(
    given: Given,
    weights: dict[str, torch.Tensor],
    heads: Iterable[int],
    modes: Iterable[bool],
) -> Iterator[tuple[Reading, torch.Tensor]]:
    """Attention alone, or added to x; of x, or of x and a table of positions."""
    x = given.x.double()
    tables = {
        path: t.detach().double()
        for path, t in weights.items()
        if "pos" in path.lower() and t.dim() > 1 and t.shape[-1] == x.shape[-1]
    }
    inputs = [("", x)]
    for path, table in tables.items():
        table = table.reshape(-1, table.shape[-1])
        if len(table) >= x.shape[1]:
            inputs.append((f"{path} added", x + table[: x.shape[1]]))
    rest = {path: t for path, t in weights.items() if path not in tables}
    for name, value in inputs:
        for reading, y in attend(replace(given, x=value), rest, heads, modes):
            yield replace(reading, around=name), y
            if given.thin is not None:
                yield replace(reading, around=f"{name} dropped".strip()), given.thin(y)
            if y.shape == x.shape:
                yield replace(reading, around=f"{name} sum".strip()), x + y


def outputs(
    given: Given,
    weights: dict[str, torch.Tensor],
    heads: Iterable[int],
    modes: Iterable[bool],
    norms: Sequence[Layer] = (),
    feed: Layer | None = None,
) -> Outputs:
    """All of `attend`, to look an output up in; if none, after a layer of its own."""
    made = Outputs()
    rows = with_sum(given, weights, heads, modes)
    if norms:
        rows = in_block(given, weights, heads, modes, norms, feed)
    for reading, value in rows:
        made.add(reading, value)
    few = sum(t.dim() > 1 for t in weights.values()) < 6
    if few and given.source is None:
        usual = not made.rows
        for inner, rest in after_a_layer(given, weights):
            for reading, value in attend(inner, rest, heads, modes):
                made.add(replace(reading, usual=reading.usual and usual), value)
    return made
