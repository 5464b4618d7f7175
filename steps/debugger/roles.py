"""Find a module's own projections of x: which are queries, keys and values."""

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from steps.debugger.run import Node, Run, same_numbers
from steps.debugger.stages import Stage, candidates, match
from steps.pytorch import torch
from steps.walk.recorder import storage

ROLE = re.compile(
    r"(?:w|to|in|fc|lin|linear|proj|map|c|my|x|a|head|attn|self|project|p)?"
    r"(q|quer(?:y|ies|ys)|k|keys?|v|vals?|values?)"
    r"(?:s|w|p|h|t|in|proj|lin|layer|linear|net|map|fc|project|projection|weights?|"
    r"heads?)?"
)
WORDS = {"q": "queries", "k": "keys", "v": "values"}


def role_in(name: str) -> str | None:
    """The role that a name speaks of: "q", "k", "v" or None."""
    tokens = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    for token in reversed(tokens):
        found = ROLE.fullmatch(token.lower())
        if found:
            return found[1][0]
    return None


@dataclass(eq=False)
class Projection:
    """Numbers that the module's own weights make of x, each token by itself."""

    node: Node
    value: torch.Tensor  # (B, T, F)
    paths: tuple[str, ...]  # of its weights
    deep: bool = False  # of another projection, not of x
    # Earlier nodes, such as before the bias.
    parts: list[Node] = field(default_factory=list)

    @property
    def layer(self) -> str:
        """The weight's path without .weight."""
        return re.sub(r"\.?(weight|bias|data)$", "", self.paths[0]) or self.paths[0]

    @property
    def width(self) -> int:
        return self.value.shape[-1]

    def same_as(self, other: "Projection") -> bool:
        """Whether one layer made both of the same numbers, not of slices of it."""
        return self.paths == other.paths and torch.equal(self.value, other.value)


@dataclass
class Heads:
    """One reading of the projections as queries, keys and values of every head."""

    q: torch.Tensor  # (B, H, T, D)
    k: torch.Tensor
    v: torch.Tensor
    roles: dict[str, list[Projection]]  # "q", "k", "v" -> one a head, or one
    layout: str = ""  # of a packed layer, such as "3 H D"
    kv_heads: int = 0  # where fewer than the heads
    base: tuple[torch.Tensor, torch.Tensor] | None = (
        None  # q and k before they were changed
    )
    changed: str = ""  # how: "rotated" keeps every vector's length, "changed" does not
    strided: bool = False  # head h has every H-th feature, of three separate layers
    given: bool = False  # x itself holds them: what is returned need not be joined
    conflicts: int = 0  # names that speak against this reading
    named: int = 0  # names that speak for it

    @property
    def H(self) -> int:
        return self.q.shape[1]

    @property
    def D(self) -> int:
        return self.q.shape[-1]


def token_axes(
    value: torch.Tensor, other: torch.Tensor | None, B: int, T: int, at: tuple[int, int]
) -> tuple[torch.Tensor, int] | None:
    """`value` as (B, T, rest), where it treats every token by itself, else None.

    other: the same operation's result after one number of x was changed, at sequence
    and token `at`; also returns how many numbers of that token changed.
    """
    places = token_places(tuple(value.shape), B, T)
    if other is not None and not places:
        for b, t in copies_of_sequences(tuple(value.shape), B, T):
            same = other.shape == value.shape
            value = value.unflatten(b, (-1, B)).movedim(b, -2)
            other = other.unflatten(b, (-1, B)).movedim(b, -2) if same else other
            places.append(((b, t), True))
    for axes, in_order in places:
        moved = by_token(value, axes, B, T, in_order)
        if other is None or other.shape != value.shape:
            return moved, moved.shape[-1]
        changed = by_token(other, axes, B, T, in_order) != moved
        tokens = changed.any(-1)
        if bool(tokens[at]) and int(tokens.sum()) == 1:
            return moved, int(changed[at].sum())
    return None


Places = list[tuple[tuple[int, ...], bool]]  # axes of sequences and tokens, their order


def token_places(shape: tuple[int, ...], B: int, T: int) -> Places:
    """The axes that may be sequences and tokens, apart or as one, B * T long.

    The truth value: whether sequences come before tokens where they are one.
    """
    found: Places = []
    for t, size in enumerate(shape):
        if size == T:
            apart = (b for b, other in enumerate(shape) if b != t and other == B)
            found += [((b, t), True) for b in apart]
            if B == 1:
                found.append(((t,), True))
        if size == B * T and B > 1:
            found += [((t,), True), ((t,), False)]
    return found


def copies_of_sequences(
    shape: tuple[int, ...], B: int, T: int
) -> list[tuple[int, int]]:
    """Axes of copies of x one after the other, as repeat makes them, and of tokens."""
    pairs = ((0, 1), (1, 0)) if len(shape) == 3 else ()
    fits = (p for p in pairs if shape[p[1]] == T and shape[p[0]] % B == 0)
    return [(b, t) for b, t in fits if shape[b] > B][:1]


def by_token(
    tensor: torch.Tensor, axes: tuple[int, ...], B: int, T: int, sequences_first: bool
) -> torch.Tensor:
    """(B, T, rest) of a tensor with its sequences and tokens at these axes."""
    rest = [d for d in range(tensor.dim()) if d not in axes]
    moved = tensor.permute(*axes, *rest)
    if sequences_first:
        return moved.reshape(B, T, -1)
    return moved.reshape(T, B, -1).transpose(0, 1)


def projections(
    run: Run, other: Run, B: int, T: int, at: tuple[int, int]
) -> tuple[list[Projection], dict[Node, str]]:
    """The projections in order, and the nodes that still are x (or x made ready)."""
    found: list[Projection] = []
    of_node: dict[Node, Projection] = {}  # and rearranged, not yet mixed with others
    plain: dict[Node, str] = {}
    aligned = len(run.nodes) == len(other.nodes)
    for node in run.nodes:
        known = all(n in plain or n in of_node for n in node.inputs)
        if not node.uses_x or node.unseen or not known or not floats_of_x(node):
            continue
        sources = {of_node[n] for n in node.inputs if n not in plain}
        second = other.nodes[node.index].value if aligned else None
        seen = token_axes(node.value, second, B, T, at)
        if seen is None or len(sources) > 1:
            continue
        value, changed = seen
        wide = tuple(p for p, t in node.params.items() if t.dim() >= 2)
        layer = bool(wide) and contracts(node)
        computed = node.entry.origin == "computed"
        if sources:
            source = sources.pop()
            if layer:
                found.append(Projection(node, value.double(), wide, deep=True))
                of_node[node] = found[-1]
            elif node.params and computed and adds_only(value, source):
                source.parts.append(source.node)
                source.node, source.value = node, value.double()
                of_node[node] = source
            elif not computed:
                of_node[node] = source
        elif layer and changed > 1:
            found.append(Projection(node, unscaled(node, value.double()), wide))
            of_node[node] = found[-1]
        elif not computed:
            plain[node] = "x"
        elif changed <= 1 or node.params or not wide:
            plain[node] = "x, made ready"
    return found, plain


def floats_of_x(node: Node) -> bool:
    """Whether a result is floating and made of x, not only written into it."""
    written = node.entry.in_place and not node.inputs and not node.reads_x
    return node.value.is_floating_point() and not written


def unscaled(node: Node, value: torch.Tensor) -> torch.Tensor:
    """The projection by the layers' own weights, where a number was put into them."""
    call = node.entry.call
    if node.entry.function != "linear" or call is None or len(call[1]) < 2:
        return value
    x, weight, *bias = call[1]
    given = (bias or [call[2].get("bias")])[0]
    known = {storage(t) for t in node.params.values()}
    if storage(weight) in known:
        return value
    own, factors = without_factors(weight, list(node.params.values()))
    if given is not None:
        given = next((t for t in node.params.values() if t.shape == given.shape), given)
        if storage(given) not in known:
            given = given / factors
    plain = torch.nn.functional.linear(x, own, given).double().detach()
    return plain if plain.shape == value.shape else value


def without_factors(
    weight: torch.Tensor, owns: list[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """A weight made of the module's own, with their numbers; each row's factor, too."""
    plain, factors = (
        weight.detach().clone(),
        torch.ones(len(weight), dtype=weight.dtype),
    )
    for own in owns:
        if own.dim() != 2 or own.shape[1:] != weight.shape[1:]:
            continue
        for start in range(len(weight) - len(own) + 1):
            rows = slice(start, start + len(own))
            ratio = weight[rows] / own
            if bool((ratio - ratio[0, 0]).abs().max() < 1e-9 * ratio[0, 0].abs()):
                plain[rows], factors[rows] = own.detach(), ratio[0, 0].detach()
    return plain, factors


def contracts(node: Node) -> bool:
    """Whether the weight was multiplied as a matrix, not added or looked up."""
    names = (
        "linear matmul __matmul__ __rmatmul__ einsum bmm conv1d conv2d addmm mm baddbmm"
    )
    names += " tensordot bilinear"
    if node.entry.function in names.split():
        return True
    return any(
        hasattr(t, "shape") for t in node.params.values()
    ) and node.entry.function not in (
        "add",
        "__add__",
        "__radd__",
        "sub",
        "mul",
        "__mul__",
        "__rmul__",
        "__iadd__",
        "layer_norm",
        "rms_norm",
    )


def adds_only(value: torch.Tensor, source: Projection) -> bool:
    """Whether the same numbers were added for every token: a bias."""
    if value.shape != source.value.shape:
        return False
    gap = value.double() - source.value
    return bool(((gap - gap[:1, :1]).abs() < 1e-9 * (1 + gap.abs().max())).all())


def readings(
    found: list[Projection], heads: int | None, guesses: list[int], run: Run
) -> Iterator[Heads]:
    """Every way to read the projections as q, k and v, the most likely first.

    heads: how many the constructor was asked for, None when it was not.
    guesses: numbers of heads to try then.
    """
    counts = [heads] if heads else [1, *(g for g in guesses if g != 1)]
    pool = [p for p in found if not p.deep]
    deep = [p for p in found if p.deep]
    yield from read_pool(pool, counts, run)
    if deep:
        yield from read_pool(found, counts, run)
        yield from read_pool(deep, counts, run)


def read_pool(pool: list[Projection], counts: list[int], run: Run) -> Iterator[Heads]:
    if not pool:
        return
    widths = [p.width for p in pool]
    yield from per_head(pool)
    if len(pool) >= 3:
        yield from separate(pool, counts)
    for packed in pool:
        if packed.width % 3 == 0 and (len(pool) == 1 or packed.width == max(widths)):
            yield from from_packed(packed, counts, run)
            break
    if len(pool) == 1:
        yield from from_shared(pool[0], counts, run)
    if len(pool) == 2:
        yield from from_two(pool, counts, run)
        yield from separate(pool, counts)


def votes(
    run: Run, parts: torch.Tensor, names: tuple[str, ...]
) -> tuple[int, dict[str, int]]:
    """How many rearrangements in the run hold one of the parts, and which part is held
    by a variable named for a role."""
    stages = [Stage(str(i), part, names, 2) for i, part in enumerate(parts)]
    count = 0
    roles: dict[str, int] = {}
    for node in run.nodes:
        if not node.uses_x or node.reads_x or not node.value.is_floating_point():
            continue
        total = float(node.value.sum())
        for index, stage in enumerate(stages):
            if math.isfinite(total) and match(node.value, stage, total):
                count += 1
                role = (
                    role_in(node.entry.name.split("[")[0]) if node.entry.name else None
                )
                if role:
                    roles.setdefault(role, index)
                break
    return count, roles


def split(value: torch.Tensor, H: int) -> torch.Tensor:
    """(B, T, H*D) -> (B, H, T, D), plainly."""
    F = value.shape[-1]
    return torch.stack(
        [value[..., h * (F // H) : (h + 1) * (F // H)] for h in range(H)], 1
    )


def separate(pool: list[Projection], counts: list[int]) -> Iterator[Heads]:
    """One projection a role, all heads in it."""
    usable = pool[:6]
    options: list[tuple[int, tuple[Projection, ...]]] = []
    for trio in itertools.product(usable, repeat=3):
        repeats = 3 - len(set(trio))
        if repeats and len({p.paths for p in usable}) >= 3:
            continue
        named = [role_in(p.layer) for p in trio]
        wrong = sum(n is not None and n != r for n, r in zip(named, "qkv", strict=True))
        right = sum(n == r for n, r in zip(named, "qkv", strict=True))
        in_order = [pool.index(p) for p in trio]
        disorder = sum(a > b for a, b in itertools.combinations(in_order, 2))
        options.append((repeats * 30 + wrong * 10 - right * 3 + disorder, trio))
    options.sort(key=lambda option: option[0])
    if options and options[0][0] < -5:  # all three are named, each once
        options = options[:1]
    for _, (q, k, v) in options:
        for H in counts:
            if q.width % H:
                continue
            D = q.width // H
            if k.width == q.width and v.width == q.width:
                heads = Heads(
                    split(q.value, H),
                    split(k.value, H),
                    split(v.value, H),
                    {"q": [q], "k": [k], "v": [v]},
                )
            elif (
                k.width == v.width
                and k.width % D == 0
                and k.width < q.width
                and H % (k.width // D) == 0
            ):
                few = k.width // D
                heads = Heads(
                    split(q.value, H),
                    split(k.value, few).repeat_interleave(H // few, 1),
                    split(v.value, few).repeat_interleave(H // few, 1),
                    {"q": [q], "k": [k], "v": [v]},
                    kv_heads=few,
                )
            else:
                continue
            heads.conflicts = sum(
                role_in(p[0].layer) not in (None, r) for r, p in heads.roles.items()
            )
            heads.named = sum(role_in(p[0].layer) == r for r, p in heads.roles.items())
            yield heads
            if H > 1 and not heads.kv_heads:
                q_, k_, v_ = (every(p.value, H) for p in (q, k, v))
                yield replace(heads, q=q_, k=k_, v=v_, strided=True)


def every(value: torch.Tensor, H: int) -> torch.Tensor:
    """(B, T, D*H) -> (B, H, T, D): head h has features h, h + H, h + 2H, ..."""
    return torch.stack([value[..., h::H] for h in range(H)], 1)


def per_head(pool: list[Projection]) -> Iterator[Heads]:
    """A list of heads, each with projections of its own (or one packed layer each)."""
    by_role = {
        r: [p for p in pool if role_in(re.sub(r"\.\d+", "", p.layer)) == r]
        for r in "qkv"
    }
    count = len(by_role["q"])
    if (
        count > 1
        and all(len(ps) == count for ps in by_role.values())
        and len({p.width for p in pool}) == 1
    ):
        q, k, v = (torch.stack([p.value for p in by_role[r]], 1) for r in "qkv")
        yield Heads(q, k, v, dict(by_role), named=3)
        return
    groups: dict[str, list[Projection]] = {}
    for p in pool:
        number = re.search(r"\.(\d+)(?:\.|$)", p.paths[0])
        groups.setdefault(number[1] if number else "", []).append(p)
    if len(groups) < 2 or "" in groups or len({len(g) for g in groups.values()}) != 1:
        size = len(pool) // 3
        same = len({p.width for p in pool}) == 1
        if len(pool) % 3 or size < 2 or not same:
            return
        # the same layers again and again, or no list: three a head, in order
        groups = {str(h): pool[3 * h : 3 * h + 3] for h in range(size)}
    heads = list(groups.values())
    count = len(heads[0])
    if count == 3 and len({p.width for p in pool}) == 1:
        orders = sorted(
            itertools.permutations(range(3)),
            key=lambda o: (
                -sum(
                    role_in(heads[0][i].layer) == r
                    for i, r in zip(o, "qkv", strict=True)
                )
            ),
        )
        for order in orders:
            q, k, v = (torch.stack([head[i].value for head in heads], 1) for i in order)
            roles = {
                r: [head[i] for head in heads]
                for r, i in zip("qkv", order, strict=True)
            }
            made = Heads(q, k, v, roles)
            made.conflicts = sum(
                role_in(p[0].layer) not in (None, r) for r, p in roles.items()
            )
            made.named = sum(role_in(p[0].layer) == r for r, p in roles.items())
            yield made
    if count == 1 and len(heads) == 3 and all(p.width == pool[0].width for p in pool):
        return  # three layers in a list: the roles, not the heads
    if count == 1 and heads[0][0].width % 3 == 0:
        D = heads[0][0].width // 3
        for order in itertools.permutations(range(3)):
            q, k, v = (
                torch.stack(
                    [head[0].value[..., i * D : (i + 1) * D] for head in heads], 1
                )
                for i in order
            )
            roles = {r: [head[0] for head in heads] for r in "qkv"}
            yield Heads(q, k, v, roles, layout="3 D")


def from_packed(packed: Projection, counts: list[int], run: Run) -> Iterator[Heads]:
    """One layer for all three, in any order of its axes."""
    B, T, F = packed.value.shape
    for H in counts:
        if F % (3 * H):
            continue
        sizes = {"3": 3, "H": H, "D": F // (3 * H)}
        seen = []
        for layout in ("3HD", "H3D", "HD3", "3DH", "DH3", "D3H"):
            if H == 1 and layout not in ("3HD", "HD3"):
                continue
            whole = packed.value.view(B, T, *(sizes[a] for a in layout))
            whole = whole.permute(
                2 + layout.index("3"),
                0,
                2 + layout.index("H"),
                1,
                2 + layout.index("D"),
            )
            count, named = votes(run, whole, ("B", "H", "T", "D"))
            seen.append((count, named, layout, whole))
            if count and layout == "3HD":
                break
        most = max(count for count, *_ in seen)
        # where no part was seen, how far each layout carries has to tell
        best = [one for one in seen if one[0] == most][: None if most == 0 else 1]
        for count, named, layout, whole in best:
            orders = list(itertools.permutations(range(3)))
            if sorted(named.values()) == [0, 1, 2]:
                orders = [tuple(named[r] for r in "qkv")]
            for order in orders if count else orders[:1]:
                q, k, v = (whole[i] for i in order)
                roles = {r: [packed] for r in "qkv"}
                yield Heads(q, k, v, roles, layout=" ".join(layout))


def from_shared(packed: Projection, counts: list[int], run: Run) -> Iterator[Heads]:
    """One layer for all three, with fewer heads of keys and values than of queries.

    Either all queries, then all keys, then all values; or that for each group of heads.
    """
    B, T, F = packed.value.shape
    roles = {r: [packed] for r in "qkv"}
    pairs = [(H, few) for H in counts for few in range(1, H) if H % few == 0]
    sizes = {n for node in run.nodes for t in node.params.values() for n in t.shape}
    for H, few in pairs:
        D, rest = divmod(F, H + 2 * few)
        if rest or H * D not in sizes:  # the heads' contexts are joined, and projected
            continue
        whole = packed.value.view(B, T, H + 2 * few, -1).movedim(2, 1)
        by_group = whole.unflatten(1, (few, -1)).movedim(2, 0)  # (H/few + 2, B, few,..)
        in_turn = whole.split((H, few, few), 1)
        grouped = by_group[:-2].movedim(0, 2).flatten(1, 2), *by_group[-2:]
        for (q, k, v), layout in (
            (in_turn, "all queries, all keys, all values"),
            (grouped, "queries, keys, values of each group"),
        ):
            k, v = (part.repeat_interleave(H // few, 1) for part in (k, v))
            yield Heads(q, k, v, roles, layout=layout, kv_heads=few)


def from_two(pool: list[Projection], counts: list[int], run: Run) -> Iterator[Heads]:
    """Queries by themselves, keys and values packed (or values alone, and so on)."""
    pairs = [(pool[0], pool[1]), (pool[1], pool[0])]
    pairs.sort(key=lambda pair: role_in(pair[0].layer) is None)
    for first, second in pairs:
        yield from from_pair(first, second, counts, run)


def from_pair(
    first: Projection, second: Projection, counts: list[int], run: Run
) -> Iterator[Heads]:
    """One role from `first`, the two others packed in `second`."""
    if second.width % 2:
        return
    alone = role_in(first.layer) or "q"
    for single in (alone, *(r for r in "qkv" if r != alone)):
        pair = [r for r in "qkv" if r != single]
        for H in counts:
            if first.width % H:
                continue
            for layout, order in itertools.product(
                ("2HD", "H2D", "HD2"), ((0, 1), (1, 0))
            ):
                D = first.width // H
                if (
                    single == "q"
                    and (second.width // 2) % D == 0
                    and second.width // 2 != first.width
                ):
                    few = second.width // 2 // D
                    if H % few:
                        continue
                elif second.width != 2 * first.width:
                    continue
                else:
                    few = H
                sizes = {"2": 2, "H": few, "D": D}
                B, T, _ = second.value.shape
                whole = second.value.view(B, T, *(sizes[a] for a in layout))
                whole = whole.permute(
                    2 + layout.index("2"),
                    0,
                    2 + layout.index("H"),
                    1,
                    2 + layout.index("D"),
                )
                _, named = votes(run, whole, ("B", "H", "T", "D"))
                if any(named.get(r, i) != i for r, i in zip(pair, order, strict=True)):
                    continue
                if few != H:
                    whole = whole.repeat_interleave(H // few, 2)
                parts = {
                    single: split(first.value, H),
                    pair[0]: whole[order[0]],
                    pair[1]: whole[order[1]],
                }
                roles = {r: [first] if r == single else [second] for r in "qkv"}
                made = Heads(
                    parts["q"], parts["k"], parts["v"], roles, layout=" ".join(layout)
                )
                made.kv_heads = few if few != H else 0
                yield made


MERGED = ("H", "D")  # not split into heads yet: a wrong split is no change of a head


def changed_heads(
    run: Run, other: Run, heads: Heads, at: tuple[int, int]
) -> Heads | None:
    """The reading with queries and keys as they are after each token's were changed by
    itself, as rotary positions or a norm do, or None where nothing did that."""
    if len(run.nodes) != len(other.nodes):
        return None
    B, H, T, _ = heads.q.shape
    repeats = H // heads.kv_heads if heads.kv_heads else 1
    made = [("q", heads.q), ("k", heads.k), ("k", heads.k[:, ::repeats])]
    found: dict[str, torch.Tensor] = {}
    of: dict[Node, set[str]] = {}
    for node, twin in zip(run.nodes, other.nodes, strict=True):
        if not node.uses_x or not node.value.is_floating_point():
            of[node] = set().union(*(of.get(n, set()) for n in node.inputs))
            continue
        value, total = node.value.double(), float(node.value.sum())
        roles = set().union(*(of.get(n, set()) for n in node.inputs))
        for role, tensor in made:
            stage = Stage(role, tensor, ("B", "H", "T", "D"), 2)
            if match(value, stage, total, MERGED):
                roles = {role}
        of[node] = roles
        if len(roles) != 1:
            continue
        role = next(iter(roles))
        whole = [t for r, t in made if r == role and t.numel() == value.numel()]
        if not whole or token_axes(value, twin.value, B, T, at) is None:
            continue
        tensor = whole[0]
        names = ("B", "H", "T", "D")
        sizes = tuple(tensor.shape)
        for order, _ in candidates(tuple(value.shape), names, sizes, MERGED):
            kept = tuple(d for d in range(4) if tensor.shape[d] != 1)
            if len(order) == len(kept) == 4:
                moved = value.reshape([tensor.shape[d] for d in order])
                now = moved.permute([order.index(d) for d in range(4)])
                ratio = now / tensor
                if float(ratio.std()) > 1e-9 and not same_numbers(now, tensor):
                    found[role] = now
                break
    if not found:
        return None
    q, k = found.get("q", heads.q), found.get("k", heads.k)
    k = k.repeat_interleave(H // k.shape[1], 1)
    lengths = [
        torch.allclose(a.norm(dim=-1), b.norm(dim=-1), rtol=1e-4)
        for a, b in ((q, heads.q), (k, heads.k))
    ]
    how = "rotated" if all(lengths) else "changed"
    return replace(heads, q=q, k=k, base=(heads.q, heads.k), changed=how)
