"""What a right forward pass does not show: each other way that attention goes wrong in
practice, tried on a copy of the module."""

import ast
import contextlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from steps.debugger.arguments import Sizes
from steps.debugger.build import make_lazy, owner_of, set_at
from steps.debugger.case import Case, plainly
from steps.debugger.explain import SAME_TYPE, TWO_TYPES, behind
from steps.debugger.load import first_line
from steps.debugger.padding import padding
from steps.debugger.result import Diagnosis
from steps.debugger.run import Node, Run, squares_of, state_of
from steps.debugger.symptoms import first
from steps.errors import UserError
from steps.pytorch import nn, torch
from steps.walk.source import Place

NEAR = 1e-6  # of the largest output
DROPPED = "weights = self.dropout(torch.softmax(scores, dim=-1))"


def first_fault(case: Case) -> Diagnosis | None:
    """The first of the further probes that finds something."""
    probes = (
        input_changed,
        hidden_tensors,
        unused_layers,
        gradients,
        dropout_rate,
        train_mode,
        half_precision,
        other_device,
        other_lengths,
        strong_scores,
        padding,
        bias_flag,
        width_not_divisible,
    )
    return first(probes, case)


def same(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Equal, NaN where the other is NaN."""
    return one.shape == two.shape and bool(
        ((one == two) | ((one != one) & (two != two))).all()
    )


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
    ours = case.run.x.untyped_storage()._cdata
    changing = (n for n in case.run.nodes if n.entry.in_place)
    node = next(
        (n for n in changing if n.entry.tensor.untyped_storage()._cdata == ours), None
    )
    return case.file.fault(
        node or case.run.place,
        "input",
        "It changes the input in place: the caller's x has other numbers afterwards.",
        "an input that is not what it was",
        "a new tensor, as in x = x + positions",
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
        "In eval mode two runs on the same input differ, and they part here: dropout "
        "stays on when it should be off.",
        "other numbers each time",
        dropout_off(node),
    )


def dropout_off(node: Node) -> str:
    """How dropout is written so that eval mode turns it off."""
    if "attention" in node.entry.function:
        return (
            "dropout_p=self.dropout if self.training else 0.0, or an nn.Dropout layer"
        )
    tensor, rate = "weights", "p"
    with contextlib.suppress(SyntaxError):
        call = ast.parse(node.entry.expression, mode="eval").body
        if isinstance(call, ast.Call) and node.entry.function == "dropout":
            given = {k.arg: k.value for k in call.keywords}
            given |= dict(zip(("input", "p"), call.args, strict=False))
            tensor = ast.unparse(given["input"]) if "input" in given else tensor
            rate = ast.unparse(given["p"]) if "p" in given else rate
    return f"F.dropout({tensor}, {rate}, self.training), or an nn.Dropout layer"


# ---------------------------------------------------------------- tensors


def hidden_tensors(case: Case) -> Diagnosis | None:
    """Weights that `parameters()` lacks, and masks that are not buffers."""
    known = {id(t) for t in (*case.module.parameters(), *case.module.buffers())}
    state = state_of(case.module)
    for path in sorted(state, key=lambda path: path not in case.weights):
        tensor = state[path]
        if id(tensor) in known or tensor.dim() == 0:
            continue
        node = first_reader(case, tensor)
        if node is None:
            continue
        if isinstance(tensor, nn.Parameter) or path in case.weights:
            return hidden_weight(case, path, node)
        if node.entry.function in ("to", "type_as", "cuda"):
            continue  # forward moves it
        place = case.made_at(path) or node.entry.place
        if takes_device(case) and re.search(r"\bdevice\b", case.file.statement(place)):
            continue  # made on the device that the constructor was told
        return case.file.fault(
            place,
            "device",
            f"{path!r} is an ordinary attribute, not a buffer: it stays behind when "
            "the module moves to another device.",
            f"{path} outside buffers()",
            f'self.register_buffer("{path.rpartition(".")[2]}", ...)',
            seen_at=node.line,
        )
    return None


def takes_device(case: Case) -> bool:
    """Whether the constructor is told the device."""
    with contextlib.suppress(TypeError, ValueError):
        return "device" in inspect.signature(type(case.module)).parameters
    return False


def first_reader(case: Case, tensor: torch.Tensor) -> Node | None:
    """The first operation that reads a tensor (or a view of it)."""
    key = tensor.untyped_storage()._cdata
    for node in case.run.nodes:
        if any(t.untyped_storage()._cdata == key for t in node.entry.inputs):
            return node
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
        "nn.ModuleList([...]) for layers, nn.Parameter(...) for tensors",
        seen_at=node.line,
    )


def unused_layers(case: Case) -> Diagnosis | None:
    """Layers that the constructor makes and the output does not depend on."""
    nodes = case.run.nodes
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
            "use it in forward, or do not make it",
        )
    return None


def in_part(grad: torch.Tensor) -> bool:
    """Whether the gradient of some rows, or of some columns, is 0 throughout."""
    none = grad == 0
    return any(bool(none.movedim(d, 0).flatten(1).all(1).any()) for d in (0, -1))


def gradients(case: Case) -> Diagnosis | None:
    """A weight that the output depends on and no gradient reaches."""
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
            "a new tensor, not one changed in place",
        )
    if run.output is None:
        return None
    lost = [path for path, tensor in leaves.items() if tensor.dim() >= 2]
    if run.output.requires_grad:
        wide = [leaves[path] for path in lost]
        with torch.enable_grad():
            total = run.output.pow(2).sum()
        grads = torch.autograd.grad(total, wide, allow_unused=True)
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
                "the tensor itself, without detach(), .data or no_grad()",
                seen_at=node.line,
                node=node,
            )
    return case.file.fault(
        next((node for node in run.nodes if lost[0] in node.params), None),
        "training",
        f"No gradient reaches {lost[0]!r}: it is used and never trained.",
        "no gradient",
        "a forward pass that autograd can follow",
    )


# ---------------------------------------------------------------- dropout


def asked_rate(case: Case) -> float | None:
    """The dropout rate that the constructor was given, where it takes one."""
    return case.sizes.p if "p" in case.told else None


def dropout_layers(case: Case) -> dict[str, nn.Dropout]:
    return {
        name: layer
        for name, layer in case.module.named_modules()
        if isinstance(layer, nn.Dropout) and layer.p > 0
    }


def dropout_rate(case: Case) -> Diagnosis | None:
    """A layer that is made with another rate than the constructor was asked for."""
    rate, layers = asked_rate(case), dropout_layers(case)
    if case.judgement is None or rate is None:
        return None
    used = not rate or any(abs(layer.p - rate) < 1e-9 for layer in layers.values())
    for name, layer in layers.items():
        if not used or abs(layer.p - (1 - rate)) < 1e-9:
            return case.file.fault(
                case.made_at(name),
                "dropout",
                f"The constructor is asked for a dropout rate of {rate:g}, and "
                f"{name!r} is made with {layer.p:g}.",
                f"p = {layer.p:g}",
                "nn.Dropout(dropout)",
            )
    return None


def train_mode(case: Case) -> Diagnosis | None:
    """Dropout in the wrong place, of the wrong strength, or lost, in train mode."""
    if case.judgement is None:
        return None
    module = case.copied()
    module.train()
    run = case.record(module=module, seed=3)
    if run.error is not None:
        error = first_line(run.error)
        if "view size is not" in str(run.error):
            # the layout that a fused call leaves depends on the device and on dropout
            line = run.place.line if run.place is not None else "?"
            case.notes.append(f"In train mode, on the CPU, line {line} raises: {error}")
            return None
        message = f"In train mode it raises {error}; in eval mode it does not."
        return case.file.fault(run.place, "dropout", message, got=error)
    steps, calm_steps = (
        [(node.line, node.value.shape) for node in nodes]
        for nodes in (run.nodes, case.run.nodes)
    )
    if steps != calm_steps:
        return None
    drawn = list(drawing(run, case.run))
    for node, calm in drawn:
        finding = dropped(case, node, calm)
        if finding is not None:
            return finding
    on_weights = [
        node
        for node, calm in zip(run.nodes, case.run.nodes, strict=True)
        if node.entry.function == "dropout"
        and calm in case.labels
        and case.labels[calm].stage.name == "weights"
    ]
    if len(on_weights) > 1 and on_weights[0] in behind(on_weights[1].inputs):
        return case.file.fault(
            on_weights[1],
            "dropout",
            "In train mode dropout falls on the weights twice: more are dropped than "
            "was asked for.",
            "dropout on weights that dropout has thinned already",
            DROPPED,
        )
    on_x = [node for node, calm in drawn if calm in case.plain]
    if on_x and len(on_x) == len(drawn):
        return case.file.fault(
            on_x[0],
            "dropout",
            "In train mode dropout falls on the input; no attention weight is dropped.",
            "dropout on x",
            DROPPED,
        )
    on_contexts = [node for node, calm in drawn if holds_contexts(case, calm)]
    if on_contexts and len(on_contexts) == len(drawn):
        return case.file.fault(
            on_contexts[0],
            "dropout",
            "In train mode dropout falls on single features of the contexts; no "
            "attention weight is dropped.",
            "dropout on the contexts",
            DROPPED,
        )
    return never_dropped(case) if not drawn else None


def drawing(run: Run, calm: Run) -> Iterator[tuple[Node, Node]]:
    """The operations that make other numbers of the same ones than in a calm run."""
    moved: set[Node] = set()
    for node, twin in zip(run.nodes, calm.nodes, strict=True):
        if node.uses_x and not same(node.value, twin.value):
            if moved.isdisjoint(node.inputs):
                yield node, twin
            moved.add(node)


def holds_contexts(case: Case, node: Node) -> bool:
    """Whether an operation makes contexts of contexts."""
    labels = [case.labels.get(n) for n in (node, *node.inputs)]
    names = [label.stage.name for label in labels if label is not None]
    return labels[0] is not None and names == ["contexts", "contexts"]


def dropped(case: Case, node: Node, calm: Node) -> Diagnosis | None:
    """Dropout that falls on something else than weights; calm: the same without it."""
    label = case.labels.get(calm)
    name = label.stage.name if label is not None else ""
    kind, message, right, got = "dropout", "", DROPPED, f"dropout on the {name}"
    if not node.used:
        kind, got = "result thrown away", "a tensor that nothing reads"
        right = "weights = self.dropout(weights)"
        message = (
            "Dropout returns a new tensor; nothing takes it, so nothing is dropped."
        )
    elif name.startswith("scores"):
        got = "dropout on the scores"
        message = (
            "In train mode dropout sets scores to zero before the softmax; a zero "
            "score is no blocked token, its weight is still exp(0)."
        )
    elif "not normalised" in name or "not renormalised" in name:
        right = "weights = self.dropout(weights), once the rows sum to 1"
        message = (
            "In train mode dropout comes before the rows are made to sum to 1, which "
            "undoes its scaling: every row still sums to 1."
        )
    elif label is not None and label.stage.rank in (1, 2) and not label.index:
        message = (
            f"In train mode dropout falls on the {name}, not on the attention weights."
        )
    elif name == "weights":
        return wrong_strength(case, node, calm)
    return case.file.fault(node, kind, message, got, right) if message else None


def wrong_strength(case: Case, node: Node, calm: Node) -> Diagnosis | None:
    """Weights that are kept at another multiple than 1/(1-p)."""
    there = calm.value > 1e-9
    kept = there & (node.value != 0)
    ratio = (node.value[kept] / calm.value[kept]).unique()
    if not ratio.numel() or ratio.max() - ratio.min() >= 1e-6 * ratio.max().abs():
        return None
    times, share = float(ratio[0]), float((node.value[there] == 0).double().mean())
    asked = asked_rate(case)
    rates = {layer.p for layer in dropout_layers(case).values() if layer.p < 1}
    rates |= {asked} if asked is not None and 0 < asked < 1 else set()
    if not rates or any(abs(times - 1 / (1 - rate)) <= 1e-4 for rate in rates):
        return None
    rate = case.sizes.p if case.sizes.p in rates else max(rates)
    return case.file.fault(
        node,
        "dropout",
        f"With p = {rate:g} dropout should keep weights at 1/(1-p) = "
        f"{1 / (1 - rate):.4g} times their value; here they are {times:.4g} times, and "
        f"{share:.0%} are dropped.",
        f"survivors times {times:.4g}",
        "nn.Dropout(p)",
    )


def never_dropped(case: Case) -> Diagnosis | None:
    """A rate, or a layer for it, that train mode does not use."""
    layers = list(dropout_layers(case))
    if not layers and asked_rate(case) is None:
        return None
    inner = [
        name
        for name, part in case.module.named_modules()
        if isinstance(part, nn.MultiheadAttention)
    ]
    place = case.made_at((*layers, *inner, "")[0])
    what = "The dropout rate is taken and never used"
    if layers:
        what = f"The dropout layer {layers[0]!r} is made and never called"
    return case.file.fault(
        place or case.file.definition(case.module, "__init__"),
        "dropout",
        f"{what}: in train mode nothing is dropped.",
        "no dropout",
        "weights = self.dropout(weights)",
    )


# ---------------------------------------------------------------- types and devices


def half_precision(case: Case) -> Diagnosis | None:
    """Numbers that float16 cannot hold, such as -1e9 in a masked_fill."""
    module, x = case.copied(), case.x.half()
    cast(module, case, torch.float16)
    if plainly(case, x, module)[1] is None:
        return None
    run = case.record(x, module)
    if run.error is None:
        return None
    text, error = str(run.error), first_line(run.error)
    if TWO_TYPES.search(text):
        return case.file.fault(
            run.place,
            "precision",
            f"In half precision (float16) two number types meet here: {error}.",
            error,
            SAME_TYPE,
        )
    if "overflow" not in text:
        return None
    if case.mask is not None:  # the caller's, in the caller's number type
        line = run.place.line if run.place is not None else None
        case.notes.append(
            f"In half precision (float16) line {line} raises: {text}; "
            "torch.finfo(scores.dtype).min is low enough in every type."
        )
        return None
    return case.file.fault(
        run.place,
        "mask",
        f"In half precision (float16, largest number 65504) it raises: {text}.",
        error,
        "-torch.inf, or torch.finfo(scores.dtype).min",
    )


def cast(module: nn.Module, case: Case, dtype: torch.dtype) -> None:
    module.to(dtype)
    for path in case.hidden:
        tensor = state_of(module).get(path)
        if tensor is None or not tensor.is_floating_point():
            continue
        if isinstance(tensor, nn.Parameter):
            tensor.data = tensor.data.to(dtype)
        else:
            set_at(module, path, tensor.to(dtype))


def other_device(case: Case) -> Diagnosis | None:
    """A tensor that forward makes on the CPU whatever device the module is on."""
    for entry, tensor in case.run.mixed[:1]:
        place, maker = entry.place, case.run.node_of(tensor)
        while maker is not None:
            place = maker.entry.place
            maker = next((m for _, m in maker.constants if m is not None), None)
        return case.file.fault(
            place,
            "device",
            "It makes a tensor on the CPU whatever device the input is on; on a GPU "
            "the next use of it raises.",
            "a tensor on the CPU",
            "device=x.device, or a buffer",
            seen_at=entry.place.line,
        )
    return None


# ---------------------------------------------------------------- other inputs


def other_lengths(case: Case) -> Diagnosis | None:
    """One token alone, a full context, and a longer input than that."""
    base = case.turned(case.run.output)
    if case.x.dim() != 3 or base is None:
        return None
    B, T, C = case.x.shape
    generator = torch.Generator().manual_seed(5)
    told = case.built is None or "context" in case.told
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
            "sizes read from x.shape, and the mask cut to [:num_tokens, :num_tokens]",
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
            f"({B}, {T}, ...)",
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
        "outputs of a token that depend on it and the tokens before it only",
    )


def first_mask(case: Case) -> Node | None:
    """The first operation that holds what a mask has made."""
    for node, label in case.labels.items():
        if "masked" in label.stage.name or label.stage.name in ("weights", "contexts"):
            return node
    return None


def strong_scores(case: Case) -> Diagnosis | None:
    """A finite mask value that large scores outweigh."""
    if not case.causal or case.judgement is None or case.x.dim() != 3:
        return None
    stages = [(n.value, label.stage.name) for n, label in case.labels.items()]
    scores = [v for v, n in stages if n.startswith("scores") and "masked" in n]
    if not any(bool(torch.isfinite(value).all()) for value in scores):
        return None
    reference = case.judgement.reference
    top = float(reference.raw.abs().max()) * reference.D**-0.5
    x = case.x * (30 / max(top, 1e-9)) ** 0.5
    other = x.clone()
    other[:, -1] += 1.0
    one, two = outputs(case, x), outputs(case, other)
    gap = float((one - two)[:, :-1].abs().max() / (1 + one.abs().max()))
    if not 1e-7 < gap < float("inf"):
        return None
    return case.file.fault(
        first_mask(case),
        "mask",
        "With large scores (up to 30) the blocked tokens get weight again: the mask's "
        "number is not low enough.",
        "earlier outputs that change with the last token",
    )


# ---------------------------------------------------------------- other arguments


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
                f"nn.Linear(d_in, d_out, bias={flag})",
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


@dataclass
class Odd(Sizes):
    """A width that the heads do not divide."""

    @property
    def d_out(self) -> int:
        return self.H * self.D + 1


def width_not_divisible(case: Case) -> Diagnosis | None:
    """A width that the heads do not divide: refused, or wrong in silence."""
    built, judgement = case.built, case.judgement
    if built is None or built.again is None or judgement is None:
        return None
    if {"D", "H"} & case.told != {"H"} or case.told.isdisjoint({"d_out", "width"}):
        return None
    if judgement.heads.H < 2 or case.sizes.d_out <= judgement.heads.D:
        return None  # the width is one head's
    odd = Odd(**vars(case.sizes))
    if case.sizes.d_in == case.sizes.d_out:
        odd.d_in = odd.d_out
    try:
        module = built.again(odd)
    except Exception:
        case.notes.append(
            "A width that the heads do not divide is refused by the constructor."
        )
        return None
    x = torch.randn(case.sizes.B, case.sizes.T, odd.d_in, dtype=torch.float64)
    try:
        make_lazy(module, x, odd.D)
    except UserError:
        return None  # its layers get their sizes in forward, which refuses this one
    module.double()
    module.eval()
    return odd_width(case, odd, case.record(x, module), module)


def odd_width(case: Case, odd: Odd, run: Run, module: nn.Module) -> Diagnosis | None:
    """What a module made of such a width does with it."""
    width, quotient = odd.d_out, odd.d_out // odd.H
    said = f"d_out = {width} with {odd.H} heads is"
    place, setting = floored(case, module, quotient)
    where = run.place.line if run.place is not None else None
    hidden = run.failed is not None and hides_width(run.failed[2], width)
    own = "d_out" in case.told  # one width for all is often left to the caller
    if own and run.error is not None and place is not None and hidden:
        error = first_line(run.error)
        return case.file.fault(
            place,
            "constructor",
            f"{said} accepted, {setting} is rounded down to {quotient}, and only "
            f"forward fails, with an error that shows neither: {error}.",
            error,
            "assert d_out % num_heads == 0, in the constructor",
            seen_at=where,
        )
    if run.error is not None:
        case.notes.append(
            f"{said} refused only in forward, at line {where}; "
            "an assert in the constructor would say it sooner."
        )
        return None
    if case.built is not None and "config=..." in case.built.how:
        case.notes.append(
            f"With a made-up config, a width of {width} and {odd.H} heads is accepted."
        )
        return None
    wide = run.output.shape[-1] if run.output is not None else None
    if place is not None and wide == width and not own:
        case.notes.append(
            f"{said} accepted, and {setting} is rounded down to {quotient}; the output "
            "is as wide as asked."
        )
        return None
    return case.file.fault(
        place or (run.nodes[0] if run.nodes else None),
        "constructor",
        f"{said} accepted in silence, and the output is {wide} wide.",
        f"head_dim rounded down to {quotient}",
        "raise where d_out % num_heads != 0",
    )


def floored(case: Case, module: nn.Module, quotient: int) -> tuple[Place | None, str]:
    """The attribute that keeps the width divided and rounded down."""
    for owner in module.modules():
        for name, value in vars(owner).items():
            if type(value) is int and value == quotient:
                place = case.file.constructor(owner, name)
                if place is not None:
                    return place, name
    places = case.file.inside(module, "__init__", divides)
    return next(iter(places), None), "a quotient"


def divides(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv)


def hides_width(args: tuple, width: int) -> bool:
    """Whether the call that failed shows neither the width nor a head's part of it.

    Numbers packed three wide, reshaped to sizes that are all given: the reader sees
    only that two products differ. A -1, or d_out as the last axis, gives it away.
    """
    tensor = next((t for t in args if isinstance(t, torch.Tensor)), None)
    sizes = [s for a in args[1:] for s in (a if isinstance(a, tuple | list) else (a,))]
    return tensor is not None and tensor.shape[-1] == 3 * width and -1 not in sizes
