"""Other number types: the same numbers as in float64, as far as the type can hold them.

float32 is what PyTorch uses unasked: what is wrong there is a fault. In float16 and
bfloat16 it is a risk.
"""

from steps.debugger.build import set_at
from steps.debugger.case import Case, plainly
from steps.debugger.explain import SAME_TYPE, TWO_TYPES
from steps.debugger.load import first_line
from steps.debugger.result import Diagnosis
from steps.debugger.run import Node, Run, state_of
from steps.debugger.settings.runs import first_mask, off, output_of, pairs_of
from steps.pytorch import nn, torch

# Far beyond what rounding does to an output, as a part of its largest number.
FAR = {torch.float32: 1e-3, torch.float16: 0.1, torch.bfloat16: 0.4}
HUGE = 1e4  # no score is; float32 rounds it to a thousandth


def in_type(case: Case, dtype: torch.dtype) -> tuple[Run | None, str]:
    """A recorded run in a number type, where it fails there or its output is far off;
    and what is said of it: an error, or how far off.
    """
    module, x = case.copied(), case.x.to(dtype)
    cast(module, case, dtype)
    out, error = plainly(case, x, module)
    if error is None and (out is None or case.run.output is None):
        return None, ""
    if error is None:
        assert out is not None
        gap = off(out, case.turned(case.run.output))
        if gap <= FAR[dtype]:
            return None, ""
        run = case.record(x, module)
        return run, "NaN" if gap == float("inf") else f"{gap:.2g} of the largest number"
    run = case.record(x, module)
    return (run, first_line(run.error)) if run.error is not None else (None, "")


def cast(module: nn.Module, case: Case, dtype: torch.dtype) -> None:
    """Change the number type of a module and of what it keeps beside its parameters."""
    # Not .to(dtype), which takes complex tables for real ones.
    module._apply(lambda tensor: tensor.to(dtype) if floating(tensor) else tensor)
    for path in case.hidden:
        tensor = state_of(module).get(path)
        if tensor is None or not floating(tensor):
            continue
        if isinstance(tensor, nn.Parameter):
            tensor.data = tensor.data.to(dtype)
        else:
            set_at(module, path, tensor.to(dtype))


def floating(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point()


def single_precision(case: Case) -> Diagnosis | str | None:
    """float32, in which everything runs if nothing else is asked for."""
    if not case.x.is_floating_point():
        return None
    run, said = in_type(case, torch.float32)
    if run is None:
        return "float32"
    if run.error is not None:
        meet = TWO_TYPES.search(str(run.error))
        if case.made_up or case.mask is not None or not meet:
            return None
        return case.file.fault(
            run.place,
            "precision",
            f"In float32, PyTorch's own type, two number types meet here: {said}.",
            said,
        )
    if case.mask is not None:  # one of ours
        return None
    node, why = parting(case, run)
    return case.file.fault(
        node,
        "precision",
        f"In float32, PyTorch's own type, the output is off by {said}: {why}.",
        "scores whose digits are lost",
    )


def parting(case: Case, run: Run) -> tuple[Node | None, str]:
    """Where numbers are lost that float64 still has, and how."""
    for calm, node in pairs_of(case.run, run):
        if not node.value.is_floating_point() or calm.value.shape != node.value.shape:
            continue
        top = finite(calm.value)
        if top >= HUGE or off_where_finite(calm, node) <= 0.01:
            continue
        for before in (n for n in calm.inputs if finite(n.value) >= HUGE):
            small = [n for n in before.inputs if n.uses_x and finite(n.value) < HUGE]
            if small:
                told = f"numbers up to {finite(before.value):.3g} are added to what is "
                told += f"at most {finite(small[0].value):.3g}, whose digits are lost"
                return before, told
        return calm, "here the numbers part from those in float64"
    return run.node_of(run.outputs[0]), "its numbers are not those in float64"


def finite(value: torch.Tensor) -> float:
    """The largest of the numbers that are finite."""
    if not value.is_floating_point():
        return 0.0
    kept = value[torch.isfinite(value)]
    return float(kept.abs().max()) if kept.numel() else 0.0


def off_where_finite(calm: Node, node: Node) -> float:
    kept = torch.isfinite(calm.value)
    return off(node.value[kept], calm.value[kept])


def half_precision(case: Case) -> str | None:
    """float16, which holds numbers up to 65504; a risk where it fails."""
    run, said = in_type(case, torch.float16)
    if run is None:
        return "float16"
    if run.error is None:
        case.risk(
            parting(case, run)[0],
            "precision",
            "half",
            f"In half precision (float16) the output is off by {said}.",
        )
        return None
    text = str(run.error)
    if case.mask is not None or case.made_up:  # the caller's, in the caller's type
        line = run.place.line if run.place is not None else None
        case.notes.append(
            f"In half precision (float16) line {line} raises: {text}; "
            "torch.finfo(scores.dtype).min is low enough in every type."
        )
    elif TWO_TYPES.search(text):
        case.risk(
            run.place,
            "precision",
            "half",
            f"In half precision (float16) two number types meet here: {said}. Right: "
            f"{SAME_TYPE}.",
        )
    elif "overflow" in text:
        case.risk(
            run.place,
            "mask",
            "half",
            f"In half precision (float16, largest number 65504) it raises: {text}; "
            "-torch.inf or torch.finfo(scores.dtype).min fits every type.",
        )
    return None


def brain_precision(case: Case) -> str | None:
    """bfloat16, whose numbers have three digits; a risk where the output is far off."""
    run, said = in_type(case, torch.bfloat16)
    if run is None:
        return "bfloat16"
    if run.error is None and not any(risk["setting"] == "half" for risk in case.risks):
        case.risk(
            parting(case, run)[0],
            "precision",
            "bfloat16",
            f"In bfloat16 the output is off by {said}.",
        )
    return None


# ---------------------------------------------------------------- large scores

REALISTIC = 30.0  # scores that trained models do have
LOWEST = 1e5  # a mask's number below minus this is not reached by any score


def large_scores(case: Case) -> Diagnosis | str | None:
    """A finite mask value that large scores outweigh."""
    if not case.causal or case.judgement is None or case.x.dim() != 3:
        return None
    stages = [(n.value, label.stage.name) for n, label in case.labels.items()]
    masked = [v for v, n in stages if n.startswith("scores") and "masked" in n]
    finites = [v for v in masked if bool(torch.isfinite(v).all())]
    if leak(case, REALISTIC) and finites:
        return case.file.fault(
            first_mask(case),
            "mask",
            f"With large scores (up to {REALISTIC:g}) the blocked tokens get weight "
            "again: the mask's number is not low enough.",
            "earlier outputs that change with the last token",
        )
    node, value = weakest(case)
    sizes = [-value * times for times in (2, 4, 8)] if node is not None else []
    largest = next((size for size in sizes if leak(case, size)), None)
    if largest is not None:
        case.risk(
            node,
            "mask",
            "large_scores",
            f"Scores of {largest:.1g} get past a mask of {value:.1g}: run with such, "
            "an earlier output changes with the last token; -torch.inf always holds.",
        )
        return None
    return "large scores"


def weakest(case: Case) -> tuple[Node | None, float]:
    """The first operation that makes numbers as low as a mask's, and how low."""
    for node in case.run.nodes:
        value = node.value
        if node.uses_x and value.is_floating_point() and value.numel():
            low = float(value.min())
            if -LOWEST < low < -(REALISTIC**2):
                return node, low
    return None, 0.0


def leak(case: Case, largest: float) -> bool:
    """Whether the last token reaches earlier ones where the largest score is that."""
    reference = case.judged.reference
    top = float(reference.raw.abs().max()) * reference.D**-0.5
    x = case.x * (largest / max(top, 1e-9)) ** 0.5
    other = x.clone()
    other[:, -1] += 1.0
    one, two = output_of(case, x), output_of(case, other)
    if one is None or two is None or one.shape != two.shape:
        return False
    gap = float((one - two)[:, :-1].abs().max() / (1 + one.abs().max()))
    return 1e-7 < gap < float("inf")
