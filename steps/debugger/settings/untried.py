"""What forward and the constructor offer, and no run was given."""

import inspect
from collections.abc import Iterator

from steps.debugger.arguments import MEANING, plain
from steps.debugger.calls import parameters_of
from steps.debugger.case import Case

# What changes nothing that is computed: a number that is added for stability.
SMALL = ("eps", "layer")


def untried(case: Case) -> Iterator[str]:
    """Each parameter that kept its default in every run, and how to have it tried."""
    bound = set(case.given)
    if case.asked_call is not None or case.way.makes:
        args, kwargs = case.how(case.module, case.x)
        signature = inspect.signature(case.module.forward)
        bound |= set(signature.bind(*args, **kwargs).arguments) | set(kwargs)
    for p in parameters_of(case.module):
        stars = p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        if not stars and p.default is not p.empty and p.name not in bound:
            yield f"{p.name}=... (--call)"
    yield from of_constructor(case)


def of_constructor(case: Case) -> Iterator[str]:
    """The options of the constructor that were left at their default."""
    if case.built is None:
        return
    try:
        parameters = inspect.signature(type(case.module)).parameters.values()
    except (TypeError, ValueError):
        return
    for p in parameters:
        optional = p.default is not p.empty and p.kind is not p.VAR_KEYWORD
        if not optional or p.name in case.built.named:
            continue
        if MEANING.get(plain(p.name)) in SMALL or p.name in ("device", "dtype"):
            continue
        other = f"{not p.default}" if isinstance(p.default, bool) else "..."
        yield f"{p.name}={other} (--build)"
