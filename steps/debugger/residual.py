"""Read the form of a block off its sums: which norms and residuals it really has."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from steps.debugger.watch import Bound, Part, Sums, Watched
from steps.pytorch import nn, torch
from steps.walk.recorder import tensors_in
from steps.walk.source import Place

Sum = dict[int, float]


@dataclass(eq=False)
class Unit:
    """Attention or a feed-forward part: what it reads, and what its result joins."""

    parts: list[Part]
    term: int
    reads: Sum
    base: Sum | None = None  # what its result is added to; {}: to nothing; None: unused
    sum: torch.Tensor | None = None  # that sum, as it was formed
    reader: Part | None = None  # of that sum; None for the block's result
    alias: int = -1  # the term of a norm of its result alone

    @property
    def attention(self) -> bool:
        return self.parts[0].kind == "attention"

    @property
    def order(self) -> int:
        return self.parts[-1].order


@dataclass(eq=False)
class Found:
    """What a block gets wrong, and where."""

    place: Place | None
    kind: str
    message: str
    got: str
    expected: str


class Unjudged(Exception):
    """The block has a form that is not judged, and why."""


@dataclass
class Form:
    """A block's run as units that read sums and are added to sums."""

    seen: Watched
    sums: Sums
    units: list[Unit] = field(default_factory=list)
    norms: list[tuple[Part, int, Sum]] = field(default_factory=list)
    output: Sum | None = None

    def __post_init__(self) -> None:
        parts = [part for part in self.seen.parts if part.kind != "same"]
        group: list[Part] = []
        for part in parts:
            if part.kind == "other":
                raise Unjudged(f"{part.path} mixes tokens and is no attention")
            own = [p.dim() for p in part.module.parameters()]
            if part.kind == "layer" and own and max(own) < 2:
                raise Unjudged(f"{part.path} has a gain that is learnt")
            term = self.sums.of.get(id(part))
            if part.kind == "norm" and term is not None:
                reads = self.sums.sum_of(part.read)
                if reads is None and not group:
                    raise Unjudged(f"{part.path} reads what is no sum of known tensors")
                self.norms += [(part, term, reads)] if reads is not None else []
            elif part.kind == "attention":
                self.add([part])
            elif part.kind == "layer":
                group.append(part)
                if term is not None and not self.goes_on(parts, part):
                    self.add(group)
                    group = []
        self.output = self.sums.sum_of(self.seen.output)
        for unit in self.units:
            self.join(unit)

    def goes_on(self, parts: list[Part], part: Part) -> bool:
        """Whether the next layer reads what is made of this one's result alone."""
        after = parts[parts.index(part) + 1 :][:1]
        if not after or after[0].kind != "layer":
            return False
        reads = self.sums.sum_of(after[0].read)
        return reads is None or reads == {self.sums.of[id(part)]: 1}

    def add(self, parts: list[Part]) -> None:
        term = self.sums.of.get(id(parts[-1]))
        if term is None:
            raise Unjudged(f"{parts[-1].path} makes another shape than the block's")
        reads = self.sums.sum_of(parts[0].read)
        if reads is None:
            raise Unjudged(f"{parts[0].path} reads what is no sum of known tensors")
        self.units.append(Unit(parts, term, reads))

    def observed(self) -> Iterator[tuple[int, Sum, torch.Tensor | None, Part | None]]:
        """Every sum that was read, in order, and the block's result."""
        found: list = [(p.order, reads, p.read, p) for p, _, reads in self.norms]
        for unit in self.units:
            part = unit.parts[0]
            found.append((part.order, unit.reads, part.read, part))
        yield from sorted(found, key=lambda item: item[0])
        if self.output is not None:
            yield self.seen.parts[-1].order + 1, self.output, self.seen.output, None

    def join(self, unit: Unit) -> None:
        """Find the sum that a unit's result joins."""
        for part, term, reads in self.norms:
            if reads == {unit.term: 1} and part.order > unit.order:
                unit.alias = term
        later = {u.term for u in self.units if u.order > unit.order}
        later |= {
            t
            for p, t, reads in self.norms
            if set(reads) <= later and p.order > unit.order
        }
        best: tuple | None = None
        for order, total, value, reader in self.observed():
            if order <= unit.order:
                continue
            used = next((t for t in (unit.alias, unit.term) if t in total), None)
            if used is None:
                continue
            base = {t: n for t, n in total.items() if t != used and t not in later}
            if best is None or (base and not best[0]):
                best = base, value, reader, total[used]
        if best is not None:
            unit.base, unit.sum, unit.reader, times = best
            if times != 1 or any(n != round(n) for n in unit.base.values()):
                raise Unjudged("a part is scaled before it is added")

    def norm_of(self, total: Sum | None) -> tuple[Part, Sum] | None:
        """The norm whose result a sum is, and what that norm read."""
        for part, term, reads in self.norms:
            if total == {term: 1}:
                return part, reads
        return None

    def root(self, unit: Unit) -> Sum:
        """What a unit reads, before the norm if it reads a norm's result."""
        normed = self.norm_of(unit.reads)
        return normed[1] if normed is not None else unit.reads

    def said(self, total: Sum | None) -> str:
        """A sum in words, such as x + attn(norm1(x))."""
        if total is None:
            return "?"
        words = []
        for term, times in sorted(total.items()):
            word = self.name(term)
            words += [word] * int(times) if times in (1, 2) else [f"{times:g} * {word}"]
        return " + ".join(words) or "nothing"

    def name(self, term: int) -> str:
        if term == 0:
            return "x"
        for part, number, reads in self.norms:
            if number == term:
                return f"{part.path}({self.said(reads)})"
        unit = next(u for u in self.units if u.term == term)
        path = unit.parts[-1].path if len(unit.parts) == 1 else "feed_forward"
        return f"{path}({self.said(unit.reads)})"


def relation(form: Form, unit: Unit) -> str:
    """How what a unit reads and what its result is added to belong together."""
    base, reads = unit.base, unit.reads
    if base is None:
        return "unused"
    if not base:
        last = unit is form.units[-1] and not unit.attention and not widens(unit)
        return "tail" if last else "dropped"
    normed = form.norm_of(reads)
    if base == reads:
        return "plain"
    if normed is not None and base == normed[1]:
        return "pre"
    root = form.root(unit)
    earlier = {t for u in form.units if u.order < unit.order for t in (u.term, u.alias)}
    rest = minus(base, root)
    if rest and all(n > 0 for n in rest.values()):
        if set(rest) <= earlier - set(root):
            return "parallel"
        return "alone" if len(root) == 1 and set(root) <= earlier else "twice"
    if rest and all(n < 0 for n in rest.values()):
        return "lost"
    return "other"


def minus(one: Sum, two: Sum) -> Sum:
    found = {t: one.get(t, 0) - two.get(t, 0) for t in {*one, *two}}
    return {t: n for t, n in found.items() if n}


KNOWN = ("pre", "plain", "parallel")
PASSES = (*KNOWN, "tail")  # a last layer, to which nothing is added


def fault_in(form: Form, names_used: set[str]) -> Found | None:
    """What no known architecture does by design; None where all is well or unclear.

    names_used: the attributes that any method but the constructor mentions.
    """
    relations = [relation(form, unit) for unit in form.units]
    return (
        dropped_norm(form)
        or other_norm(form, relations, names_used)
        or wrong_residual(form, relations)
        or mixed_norms(form, relations)
    )


def dropped_norm(form: Form) -> Found | None:
    """A norm whose result goes nowhere, while what it read is read as it was."""
    for part, term, reads in form.norms:
        later = [p for p in form.seen.parts if p.order > part.order]
        given = [t for p in later for t in tensors_in((p.args, p.kwargs))]
        given += list(tensors_in(form.seen.result))
        used = any(term in total for _, total, _, _ in form.observed())
        same = any(alike(t, part.made) for t in given)
        if used or same:
            continue
        for unit in form.units:
            if unit.order > part.order and unit.reads == reads:
                return Found(
                    unit.parts[0].place,
                    "norm",
                    f"The result of {part.path} is used nowhere: {unit.parts[0].path} "
                    f"is given {form.said(reads)} as it was before the norm.",
                    f"{unit.parts[0].path}({form.said(reads)})",
                    f"{unit.parts[0].path}({part.path}({form.said(reads)}))",
                )
    return None


def other_norm(form: Form, relations: list[str], names_used: set[str]) -> Found | None:
    """A norm that was made and is mentioned nowhere, and another used in its place."""
    called = {id(part.module) for part in form.seen.parts}
    kinds = {type(part.module) for part, _, _ in form.norms}
    owners = {path.rpartition(".")[0] for path in (p.path for p, _, _ in form.norms)}
    spare = []
    for owner in owners:
        holder = form.seen.block.get_submodule(owner)
        spare += [
            name
            for name, module in holder.named_children()
            if type(module) in kinds
            and id(module) not in called
            and name not in names_used
        ]
    if len(spare) != 1 or not set(PASSES) >= set(relations):
        return None
    seen: dict[int, Part] = {}
    for part, _, reads in form.norms:
        first = seen.setdefault(id(part.module), part)
        if first is not part:
            return Found(
                part.place,
                "norm",
                f"{spare[0]} is made and never called, and {part.path} is used twice: "
                f"here on {form.said(reads)}.",
                f"{part.path}({form.said(reads)})",
                f"{spare[0]}({form.said(reads)})",
            )
    last, total = form.units[-1], form.output
    if "pre" not in relations:
        if form.norm_of(last.base) and total == {**(last.base or {}), last.term: 1}:
            return Found(
                where(form, last, "plain"),
                "norm",
                f"{spare[0]} is made and never called: the sum here is not normed, and "
                "the one before it is.",
                form.said(total),
                f"{spare[0]}({form.said(total)})",
            )
        return None
    for unit, how in zip(form.units, relations, strict=True):
        if how == "plain" and form.norm_of(unit.reads) is None:
            first_part = unit.parts[0]
            return Found(
                first_part.place,
                "norm",
                f"{spare[0]} is made and never called: {first_part.path} is given "
                "numbers that no norm was applied to, and the other part is not.",
                f"{first_part.path}({form.said(unit.reads)})",
                f"{first_part.path}({spare[0]}({form.said(unit.reads)}))",
            )
    return None


def wrong_residual(form: Form, relations: list[str]) -> Found | None:
    """A sum with something else than what its unit read, where another is right."""
    for at, (unit, how) in enumerate(zip(form.units, relations, strict=True)):
        others = relations[:at] + relations[at + 1 :]
        if not any(other in KNOWN for other in others):
            continue
        said = problem(form, unit, how, others)
        if said is None:
            continue
        root, part = form.root(unit), unit.parts[-1]
        if how == "plain":  # what it read is itself the norm of what it belongs to
            normed = form.norm_of(unit.base)
            root = normed[1] if normed is not None else root
        result = form.name(unit.term)
        if how == "alone":
            return alone(form, unit, said)
        return Found(
            where(form, unit, how),
            "residual",
            f"{said} It reads {form.said(unit.reads)}, and what is formed differs from "
            f"what had to be by {off(form, unit, root)} at most.",
            form.said({**(unit.base or {}), unit.term: 1})
            if unit.base is not None
            else f"{part.path}'s result is not used",
            f"{form.said(root)} + {result}",
        )
    return None


def alone(form: Form, unit: Unit, said: str) -> Found:
    """A part that reads what the one before it made, without the sum it is added to."""
    path, right = unit.parts[-1].path, form.said(unit.base)
    normed = form.norm_of(unit.reads)
    right = f"{normed[0].path}({right})" if normed is not None else right
    first = normed[0] if normed is not None else unit.parts[0]
    return Found(
        first.place, "residual", said, form.name(unit.term), f"{path}({right})"
    )


def problem(form: Form, unit: Unit, how: str, others: list[str]) -> str | None:
    """What is wrong about a unit's residual, in a sentence; None for what may be."""
    path = unit.parts[-1].path
    if how == "unused" and form.output is not None:
        return f"What {path} makes is used nowhere."
    if how == "dropped" and (unit.attention or widens(unit)):
        return f"The result of {path} replaces x and is not added to it."
    if how == "plain" and "pre" in others and form.norm_of(unit.base) is not None:
        return f"The result of {path} is added to the norm of x, not to x."
    if how == "alone":
        return (
            f"{path} reads {form.said(unit.reads)}, one part's result without what "
            f"that is added to, and its own is added to {form.said(unit.base)}."
        )
    if how == "twice":
        return f"To the result of {path} more is added than what it was made from."
    if how == "lost":
        return (
            f"To the result of {path} is added a tensor from before: what came in "
            "between is lost."
        )
    return None


def widens(unit: Unit) -> bool:
    """Whether a unit is a feed-forward part: wider inside than what it returns."""
    made = unit.parts[-1].made
    width = made.shape[-1] if made is not None else 0
    linear = [
        m for p in unit.parts for m in p.module.modules() if isinstance(m, nn.Linear)
    ]
    return len(linear) > 1 and any(m.out_features > width for m in linear)


def where(form: Form, unit: Unit, how: str) -> Place | None:
    """Where a wrong sum is formed."""
    bound = form.seen.bound
    if how == "unused" or unit.sum is None:
        return unit.parts[-1].place
    start = unit.parts[0].order
    found = [
        b
        for b in bound
        if b.order > start and not b.argument and alike(b.value, unit.sum)
    ]
    if how == "dropped":
        streams = {
            b.name for b in bound if b.order < start and in_stream(form, unit, b)
        }
        found = [b for b in found if b.name in streams][-1:] or found
    if found:
        return found[0].place
    return unit.reader.place if unit.reader is not None else form.seen.left


def in_stream(form: Form, unit: Unit, bound: Bound) -> bool:
    return form.sums.sum_of(bound.value) == form.root(unit)


def alike(one: torch.Tensor, two: torch.Tensor | None) -> bool:
    return two is not None and one.shape == two.shape and torch.equal(one, two)


def off(form: Form, unit: Unit, root: Sum) -> str:
    """How far a sum is from what it had to be, the largest difference."""
    base = unit.base if unit.base is not None else {}
    gap = torch.zeros_like(form.sums.terms[0])
    for term, times in minus(base, root).items():
        gap = gap + times * form.sums.terms[term]
    return f"{float(gap.abs().max()):.2g}"


def mixed_norms(form: Form, relations: list[str]) -> Found | None:
    """One unit with its norm before it, another with the norm after the sum."""
    if not {"pre", "plain"} <= set(relations):
        return None
    for at, (unit, how) in enumerate(zip(form.units, relations, strict=True)):
        if how != "plain" or form.norm_of(unit.reads) is not None:
            continue
        total = {**(unit.base or {}), unit.term: 1}
        after = form.output if at + 1 == len(form.units) else form.units[at + 1].base
        normed = form.norm_of(after)
        if normed is None or normed[1] != total:
            continue
        return Found(
            normed[0].place,
            "norm",
            f"{normed[0].path} is applied after the sum here, and before its part "
            "elsewhere in the block: the sum of all that came before is normed away.",
            form.said(after),
            f"{form.said(unit.reads)} + {unit.parts[-1].path}"
            f"({normed[0].path}({form.said(unit.reads)}))",
        )
    return None
