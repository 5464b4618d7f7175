"""Inputs of other lengths: one token, one sequence, a full context, and more."""

from dataclasses import replace

from steps.debugger.arguments import Sizes
from steps.debugger.build import make_lazy
from steps.debugger.case import Case, plainly
from steps.debugger.load import first_line
from steps.debugger.result import Diagnosis
from steps.debugger.run import squares_of, state_of
from steps.debugger.settings.runs import NEAR, first_mask, reads
from steps.pytorch import torch


def other_lengths(case: Case) -> Diagnosis | str | None:
    """One token alone, a full context, and a longer input than that."""
    base = case.turned(case.run.output)
    if case.x.dim() != 3 or base is None:
        return None
    if case.asked_call is not None:  # what it hands over may differ with the length
        return None
    if case.one_length:
        return f"length {case.T} alone"
    B, T, C = case.x.shape
    generator = torch.Generator().manual_seed(5)
    told = case.built is None or "context" in case.told
    told = told or case.sizes.context < Sizes.context  # a class with room for fewer
    rooms = [size for size in squares_of(case.module) if size >= T]
    context = case.sizes.context if told else min(rooms, default=T + 6)
    far = torch.randn(B, context + 3, C, generator=generator, dtype=torch.float64)
    far[:, :T] = case.x
    full = "an input as long as the context" if context != T + 6 else "a longer input"
    for name, x, part in (
        ("one sequence of one token", case.x[:1, :1], base[:1, :1]),
        ("one sequence", case.x[:1], base[:1]),
        (full, far[:, :context], base),
        ("an input longer than the context", far, base),
    ):
        finding = other_length(case, name, x.contiguous(), part, context)
        if finding is not None:
            return finding
    return table_sizes(case) or f"lengths 1, {T} and {context}"


def table_sizes(case: Case) -> Diagnosis | None:
    """A full context where that is longer than every width.

    A table that is made as wide as the embedding is long enough for short contexts.
    """
    built = case.built
    if built is None or built.again is None or "context" not in case.told:
        return None
    if not squares_of(case.module):
        return None
    long = replace(case.sizes, context=max(case.sizes.d_out, case.sizes.d_in) + 3)
    generator = torch.Generator().manual_seed(5)
    shape = (1, long.context, case.x.shape[-1])
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    try:
        module = built.again(long)
        make_lazy(module, x, long.D)
    except Exception:
        return None
    module.double()
    module.eval()
    if plainly(case, x, module)[1] is None:
        return None
    run = case.record(x, module)
    if run.error is None or run.failed is None:
        return None
    for path, tensor in state_of(module).items():
        size = tensor.shape[-1] if tensor.dim() >= 2 else 0
        if size != tensor.shape[-2:][0] or size in (0, long.context):
            continue
        if any(reads(node, tensor) for node in run.nodes):
            return case.file.fault(
                case.made_at(path) or run.place,
                "length",
                f"With {long.context} tokens, as many as the constructor was asked to "
                f"have room for, it raises {first_line(run.error)}: {path!r} has room "
                f"for {size}.",
                f"{path} of shape {tuple(tensor.shape)}",
                seen_at=run.place.line if run.place is not None else None,
            )
    return None


def other_length(
    case: Case, name: str, x: torch.Tensor, part: torch.Tensor, context: int
) -> Diagnosis | None:
    """An input that raises, or whose output does not begin as `part` does."""
    (B, T, _), said = x.shape, f"With {name}, shape {tuple(x.shape)}"
    out, error = plainly(case, x)
    if error is not None and x.shape[1] > context:
        clear = isinstance(error, ValueError | AssertionError)
        more = "" if clear else " (a check of the length would say it more clearly)"
        refused = f"{first_line(error)}{more}"
        case.notes.append(f"An input longer than context_length is refused: {refused}")
        return None
    if error is not None:
        got = first_line(error)
        return case.file.fault(
            case.record(x).place,
            "length",
            f"{said}, it raises {got}.",
            got,
        )
    if out is None:
        return None
    if tuple(out.shape[:2]) != (B, T):
        run = case.record(x)
        sizes = {T, B * T}
        lost = (n for n in run.nodes if n.uses_x and sizes.isdisjoint(n.entry.shape))
        return case.file.fault(
            next(lost, run.node_of(out)),
            "length",
            f"{said}, the output has shape {tuple(out.shape)}.",
            f"shape {tuple(out.shape)}",
        )
    head = out[: part.shape[0], : part.shape[1]]
    gap, near = head - part[:, : head.shape[1]], NEAR * (1 + part.abs().max())
    if bool((gap.abs() <= near).all()) or not (case.causal or case.T == T):
        return None
    return case.file.fault(
        first_mask(case),
        "length",
        f"{said}, the first tokens' outputs are not those of the same tokens in "
        "another length: tokens are read that should not be.",
        "outputs that change with the length",
    )
