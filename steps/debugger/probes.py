"""What a right forward pass does not show: each other way that attention goes wrong in
practice, tried on a copy of the module."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from steps.debugger.build import owner_of
from steps.debugger.case import Case, judge_run, plainly, run_twice
from steps.debugger.load import first_line, unless_memory
from steps.debugger.result import Diagnosis
from steps.debugger.run import Node, Run, state_of
from steps.debugger.settings.cache import in_parts
from steps.debugger.settings.context import other_context
from steps.debugger.settings.devices import first_reader, other_device
from steps.debugger.settings.lengths import other_lengths
from steps.debugger.settings.own_mask import own_mask
from steps.debugger.settings.padding import padding
from steps.debugger.settings.precision import (
    brain_precision,
    half_precision,
    large_scores,
    single_precision,
)
from steps.debugger.settings.rotary import rotary
from steps.debugger.settings.runs import NEAR, first_mask, same
from steps.debugger.settings.training import dropout_rate, train_mode
from steps.debugger.settings.untried import untried
from steps.debugger.settings.width import width_not_divisible
from steps.pytorch import nn, torch
from steps.walk.recorder import storage

__all__ = ["NEAR", "first_fault", "first_mask", "outputs", "random_in_eval"]

# In the order in which they are run. Each gives a fault, or the words for what was run
# and found right, or None; see steps.debugger.settings.
Probe = Callable[[Case], Diagnosis | str | None]


def first_fault(case: Case) -> tuple[Diagnosis, Probe] | None:
    """The first fault that another setting shows, and what showed it.

    What was run and right is added to `case.tried`, what was not to `case.not_tried`.
    """
    for probe in PROBES:
        found = probe(case)
        if isinstance(found, Diagnosis):
            return found, probe
        if found and found not in case.tried:
            case.tried.append(found)
    case.not_tried += [text for text in untried(case) if text not in case.not_tried]
    return None


def all_right(case: Case, module: nn.Module, probes: Iterable[Probe]) -> bool:
    """Whether another module, made of the same file, has no fault when called alike."""
    twin = case.of(module)
    run_twice(twin)
    if twin.run.error is not None:
        return False
    judge_run(twin)
    if twin.judgement is None or not twin.judgement.clean:
        return False
    return not any(isinstance(probe(twin), Diagnosis) for probe in probes)


def outputs(case: Case, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        result = case.forward(case.module, x)
    while isinstance(result, tuple | list):
        result = result[0]
    return result


def input_changed(case: Case) -> Diagnosis | None:
    """An operation in place on the input itself: the caller's x is another after it."""
    if same(case.run.x, case.x):
        return None
    changing = (n for n in case.run.nodes if n.entry.in_place)
    ours = (n for n in changing if storage(n.entry.tensor) == storage(case.run.x))
    node = next(ours, None)
    return case.file.fault(
        node or case.run.place,
        "input",
        "It changes the input in place: the caller's x has other numbers afterwards.",
        "an input that is not what it was",
    )


def random_in_eval(case: Case) -> Diagnosis | None:
    """An operation that draws random numbers although the module is in eval mode."""
    run = case.run
    out, _ = plainly(case, case.x, seed=2)
    if run.output is None or out is None or same(run.output, out):
        return None
    other = case.record(seed=2)
    if len(run.nodes) != len(other.nodes):
        return None
    pairs = zip(run.nodes, other.nodes, strict=True)
    node = next((one for one, two in pairs if not same(one.value, two.value)), None)
    if node is None:
        return None
    return case.file.fault(
        node,
        "dropout",
        "In eval mode two runs on the same input differ, and they part here: what is "
        "drawn at random, as by dropout, stays on when it should be off.",
        "other numbers each time",
    )


# ---------------------------------------------------------------- tensors


def hidden_weights(case: Case) -> Diagnosis | None:
    """Weights that `parameters()` lacks."""
    known = {id(t) for t in (*case.module.parameters(), *case.module.buffers())}
    for path, tensor in state_of(case.module).items():
        weight = isinstance(tensor, nn.Parameter) or path in case.weights
        if id(tensor) in known or tensor.dim() == 0 or not weight:
            continue
        node = first_reader(case, tensor)
        if node is not None:
            return hidden_weight(case, path, node)
    return None


def hidden_weight(case: Case, path: str, node: Node) -> Diagnosis:
    """The fault of a weight that an optimiser would not be given."""
    name, _, rest = path.partition(".")
    what = f"{path!r} is an ordinary tensor, not an nn.Parameter"
    listed = rest.partition(".")[0].isdigit()
    if listed:
        what = (
            f"The weights in {name!r} are in a plain list, which nn.Module does not "
            "look into"
        )
    return case.file.fault(
        case.made_at(name if listed else path) or node.entry.place,
        "training",
        f"{what}: parameters() does not list them, so an optimiser never trains them "
        "and to(device) and state_dict() leave them out.",
        f"{path} outside parameters()",
        seen_at=node.line,
    )


def unused_layers(case: Case) -> Diagnosis | None:
    """Layers that the constructor makes and the output does not depend on."""
    nodes = case.run.nodes
    if not any(node.params for node in nodes):
        return None  # of a source that cannot be had, nothing is recorded
    used = [case.weights[p] for node in nodes for p in node.params if p in case.weights]
    used += [tensor for node in nodes for tensor in node.entry.inputs]
    for part in case.module.modules():
        if isinstance(part, nn.MultiheadAttention):
            used += part.parameters()
    known = {id(tensor) for tensor in used}
    for path, tensor in case.weights.items():
        if tensor.dim() < 2 or id(tensor) in known:
            continue
        layer = case.judgement is not None and "." in path
        return case.file.fault(
            case.made_at(path.removesuffix(".weight")),
            "output" if layer else "projection",
            f"{path!r} is made and never used: the output does not depend on it.",
            "no operation reads it",
        )
    return None


def in_part(grad: torch.Tensor) -> bool:
    """Whether the gradient of some rows, or of some columns, is 0 throughout."""
    none = grad == 0
    return any(bool(none.movedim(d, 0).flatten(1).all(1).any()) for d in (0, -1))


def gradients(case: Case) -> Diagnosis | None:
    """A weight that the output depends on and no gradient reaches."""
    if any(closes_over(v) for m in case.module.modules() for v in vars(m).values()):
        return None  # a copy of the module would still call the first one's layers
    module = case.copied()
    state = state_of(module)
    leaves = {p: state[p] for p in case.weights if p in state and state[p].is_leaf}
    for tensor in leaves.values():
        tensor.requires_grad_(True)
    run = case.record(module=module, grad=True)
    if run.error is not None:  # a change in place, mostly, that autograd refuses
        error = first_line(run.error)
        return case.file.fault(
            run.place,
            "training",
            f"Without gradients it runs; with them, as in training, it raises {error}",
            error,
        )
    if run.output is None:
        return None
    lost = [path for path, tensor in leaves.items() if tensor.dim() >= 2]
    if run.output.requires_grad:
        wide = [leaves[path] for path in lost]
        with torch.enable_grad():
            total = run.output.pow(2).sum()
        try:
            grads = torch.autograd.grad(total, wide, allow_unused=True)
        except RuntimeError as error:
            unless_memory(error)
            return overwritten(case, run, error)
        projecting = {path for p in case.found for path in p.paths}
        lost = [
            path
            for path, grad in zip(lost, grads, strict=True)
            if grad is None or (path in projecting and in_part(grad))
        ]
    if not lost:
        return None
    for node in run.nodes:
        made = node.entry.tensor
        given = any(t.requires_grad for t in node.entry.inputs)
        if given and made.is_floating_point() and not made.requires_grad:
            return case.file.fault(
                case.file.without_gradients(node.line) or node,
                "training",
                f"No gradient goes through it: {lost[0]!r}, or a part of it, is used "
                "and never trained.",
                "a result cut off from its weights",
                seen_at=node.line,
                node=node,
            )
    return case.file.fault(
        next((node for node in run.nodes if lost[0] in node.params), None),
        "training",
        f"No gradient reaches {lost[0]!r}: it is used and never trained.",
        "no gradient",
    )


def closes_over(value: object) -> bool:
    """Whether an attribute is a function that holds something, such as self."""
    return bool(getattr(value, "__closure__", None))


def overwritten(case: Case, run: Run, error: RuntimeError) -> Diagnosis:
    """The fault of numbers changed in place that the backward pass still needs."""
    changed = [node for node in run.nodes if node.entry.in_place and node.uses_x]
    return case.file.fault(
        changed[-1] if changed else run.place,
        "training",
        "Numbers are changed in place that the backward pass still needs: training "
        f"raises {first_line(error)}",
        "numbers changed in place",
    )


# ---------------------------------------------------------------- the bias flag


def bias_flag(case: Case) -> Diagnosis | None:
    """A bias flag that does not reach the query, key and value layers."""
    built = case.built
    if built is None or built.again is None or case.judgement is None:
        return None
    if "bias" not in case.told:
        return None
    flag = next(name for name, what in built.named.items() if what == "bias")
    try:
        without = built.again(replace(case.sizes, bias=False))
        having = built.again(replace(case.sizes, bias=True))
    except Exception:
        return None
    off, on = biases(without), biases(having)
    roles = case.judgement.heads.roles.values()
    layers = list(dict.fromkeys(ps[0].layer for ps in roles if ps))
    for layer in layers:
        wrong = ""
        if layer in off:
            wrong = f"With {flag}=False {layer!r} still has a bias"
        elif layer not in on and (on == off or any(other in on for other in layers)):
            wrong = f"With {flag}=True {layer!r} has no bias"
        if wrong and is_linear(without, layer):
            place = case.made_at(layer)
            makers = place, case.made_at(layer.split(".")[0])
            said = any("bias=True" in case.file.statement(at) for at in makers)
            if said and "still" in wrong:
                case.notes.append(f"{wrong}: its constructor says bias=True.")
                continue
            return case.file.fault(
                place,
                "constructor",
                f"{wrong}: the flag does not reach it.",
                wrong,
            )
    return None


def biases(module: nn.Module) -> set[str]:
    return {
        path.rpartition(".")[0]
        for path, tensor in state_of(module).items()
        if path.endswith("bias") and isinstance(tensor, nn.Parameter)
    }


def is_linear(module: nn.Module, path: str) -> bool:
    try:
        owner, name = owner_of(module, path)
        listed = isinstance(owner, list | tuple)
        layer = owner[int(name)] if listed else getattr(owner, name)
        return isinstance(layer, nn.Linear)
    except (AttributeError, LookupError, ValueError):
        return False


PROBES: tuple[Probe, ...] = (
    input_changed,
    hidden_weights,
    unused_layers,
    gradients,
    dropout_rate,
    train_mode,
    single_precision,
    half_precision,
    brain_precision,
    other_device,
    other_lengths,
    large_scores,
    own_mask,
    rotary,
    other_context,
    in_parts,
    padding,
    bias_flag,
    width_not_divisible,
)
