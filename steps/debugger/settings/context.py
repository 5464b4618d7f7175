"""A context that is not x: queries from one sequence, keys and values from another.

What must hold needs no second computation: where the queries' tokens are some of the
context's own, each of them has the output that it has among these by themselves.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from steps.debugger.arguments import plain
from steps.debugger.build import make_lazy
from steps.debugger.calls import CONTEXT, always, itself, parameters_of
from steps.debugger.case import Case, plainly
from steps.debugger.load import first_line
from steps.debugger.result import Diagnosis
from steps.debugger.roles import role_in
from steps.debugger.run import Node, Run
from steps.debugger.settings.runs import off, output_of
from steps.pytorch import torch

FAR = 1e-3  # of the largest number: no rounding is
KEYS = ("k", "key", "keys", "v", "value", "values")
MORE = 2  # tokens that the context has more than x


@dataclass
class Crossed:
    """A case whose queries and whose keys and values come from different inputs."""

    case: Case
    query: str  # the parameter for x
    others: list[str]  # those for the context

    def out(
        self, x: torch.Tensor, context: torch.Tensor
    ) -> tuple[torch.Tensor | None, Exception | None]:
        return plainly(self.with_context(context), x)

    def with_context(self, context: torch.Tensor) -> Case:
        return self.case.giving(**{name: always(context) for name in self.others})

    def read_as_x(self, x: torch.Tensor) -> Case:
        """A case in whose runs the context is followed in place of x."""
        makes: dict[str, Callable] = dict.fromkeys(self.others, itself)
        return self.case.giving(**{self.query: always(x), **makes})


def without_mask(case: Case) -> Case:
    """The case called without the mask that made it causal."""
    if case.mask is None:
        return case
    makes, name = dict(case.way.makes), case.mask.name
    wanted = next(p for p in parameters_of(case.module) if p.name == name)
    makes.pop(name)
    if wanted.default is wanted.empty:
        makes[name] = always(None)
    return case.by(replace(case.way, makes=makes, mask=None))


def crossed(case: Case) -> Crossed | None:
    """The case with the parameters for x and for a context told apart."""
    bare = without_mask(case)
    given = [name for name, make in case.way.makes.items() if make is itself]
    spare = [
        p.name
        for p in parameters_of(case.module)
        if p.default is None and p.name not in given
    ]
    keys = [n for n in spare if CONTEXT.fullmatch(plain(n))][:1]
    keys = keys or [n for n in spare if plain(n) in KEYS]
    if len(given) == 1:
        return Crossed(bare, given[0], keys) if keys else None
    if len(given) == 2:
        for query, other in (given, given[::-1]):
            tried = Crossed(bare, query, [other])
            longer = longer_context(case)
            out, _ = tried.out(case.x, longer)
            if out is not None and out.shape[1] == case.T:
                return tried
        return Crossed(bare, given[0], given[1:])
    roles = {role_in(name): name for name in given}
    if {"q", "k", "v"} == set(roles) and len(given) == 3:
        return Crossed(bare, roles["q"], [roles["k"], roles["v"]])
    return None


def longer_context(case: Case) -> torch.Tensor:
    generator = torch.Generator().manual_seed(9)
    shape = (case.B, case.T + MORE, case.x.shape[-1])
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def other_context(case: Case) -> Diagnosis | str | None:
    """Keys and values made of a context that is longer than x."""
    if case.asked_call is not None or case.x.dim() != 3 or case.judgement is None:
        return None
    both = crossed(case)
    if both is None:
        return None
    named = "/".join(both.others)
    if case.causal and case.mask is None and not case.way.switched:
        case.not_tried.append(f"{named} other than x, in causal attention (--call)")
        return None
    context = longer_context(case)
    whole = output_of(both.case.giving(**dict.fromkeys(both.others, itself)), context)
    x = context[:, : case.T].contiguous()
    out, error = both.out(x, context)
    if error is not None or whole is None or out is None:
        return refused(case, both, x, context, error)
    case.given |= set(both.others)
    gap = off(out, whole[:, : case.T])
    if gap <= FAR:
        return other_width(both) or f"{named} of {case.T + MORE} tokens for {case.T}"
    moved = both.out(x, context.flip(1) * 2)[0]
    same = moved is not None and off(moved, out) == 0
    means = "the output does not depend on it" if same else f"it is {gap:.2g} off"
    run = both.read_as_x(x).record(context)
    node, role = not_of_context(case, run)
    return case.file.fault(
        node or first_scores(case),
        "projection" if role else "scores",
        f"With {named} of {case.T + MORE} tokens, the first {case.T} of which are "
        f"{both.query}, the output must be what these have among all of them, and "
        f"{means} (as a part of the largest number)."
        + (f" Here {role} are made, and {named} is not in them." if role else ""),
        f"{role} of {both.query}" if role else "another output",
        node=node,
    )


def not_of_context(case: Case, run: Run) -> tuple[Node | None, str]:
    """The projection to keys or values that reads nothing of the context."""
    for role, words in (("k", "keys"), ("v", "values")):
        paths = {path for p in case.judged.heads.roles[role] for path in p.paths}
        made = [n for n in run.nodes if not paths.isdisjoint(n.params)]
        if made and not any(node.uses_x for node in made):
            return made[0], words
    return None, ""


def first_scores(case: Case) -> Node | None:
    found = (n for n, label in case.labels.items() if label.stage.rank >= 3)
    return next(found, None)


def refused(
    case: Case,
    both: Crossed,
    x: torch.Tensor,
    context: torch.Tensor,
    error: Exception | None,
) -> Diagnosis | None:
    """A context that raises: a fault where one as long as x does not."""
    named = "/".join(both.others)
    short, _ = both.out(x, context[:, MORE:].contiguous())
    if short is None or error is None:
        case.not_tried.append(f"{named} other than {both.query} (--call)")
        return None
    run = both.with_context(context).record(x)
    if run.error is None:
        return None
    case.given |= set(both.others)
    node, role = not_of_context(case, both.read_as_x(x).record(context))
    if node is not None:
        return case.file.fault(
            node,
            "projection",
            f"With {named} of {context.shape[1]} tokens for the {case.T} of "
            f"{both.query} it raises {first_line(error)}: here {role} are made, and "
            f"{named} is not in them.",
            f"{role} of {both.query}",
            seen_at=run.place.line if run.place is not None else None,
        )
    return case.file.fault(
        run.place,
        "length",
        f"With {named} of {context.shape[1]} tokens for the {case.T} of {both.query} "
        f"it raises {first_line(error)}; with {case.T} it does not.",
        first_line(error),
    )


def other_width(both: Crossed) -> Diagnosis | None:
    """A context that is wider than x, where the constructor is told how wide."""
    case, built = both.case, both.case.built
    if built is None or built.again is None:
        return None
    wide = case.x.shape[-1] + 6
    try:
        module = built.again(replace(case.sizes, d_context=wide))
        make_lazy(module, case.x, case.sizes.D)
    except Exception:
        return None
    name = next((n for n, what in built.named.items() if what == "d_context"), None)
    if name is None:
        return None
    module.double()
    module.eval()
    context = torch.randn(case.B, case.T + MORE, wide, dtype=torch.float64)
    _, error = plainly(both.with_context(context), case.x, module)
    if error is None:
        return None
    run = both.with_context(context).record(case.x, module)
    return case.file.fault(
        run.place,
        "projection",
        f"With {name}={wide} and a context {wide} wide it raises {first_line(error)}; "
        "with one as wide as x it does not.",
        first_line(error),
    )
