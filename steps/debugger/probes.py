# ruff: noqa: E501 - sentences for the reader are kept whole
"""What a right forward pass does not show: each way that attention goes wrong in practice,
tried on a copy of the module. And the black-box report where no heads can be found."""

import contextlib
import copy
import inspect
import re
import traceback
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from steps.debugger.build import Sizes, fill, make_lazy, owner_of, set_at
from steps.debugger.explain import (
    RIGHT,
    WORDS,
    File,
    Finding,
    apply,
    mark,
    path_of,
    raised,
    rows,
)
from steps.debugger.load import first_line
from steps.debugger.result import Diagnosis
from steps.debugger.roles import Heads
from steps.debugger.run import Node, Run, place_of, record, state_of
from steps.errors import UserError
from steps.pytorch import nn, torch
from steps.walk.recorder import tensors_in
from steps.walk.source import Place

if TYPE_CHECKING:
    from steps.debugger.examine import Case

NEAR = 1e-6  # of the largest output


# ---------------------------------------------------------------- before the verdict


def random_in_eval(case: "Case", file: File) -> Finding | None:
    """An operation that draws random numbers although the module is in eval mode."""
    assert case.run is not None
    first = case.run
    out, _ = plainly(case, case.x, seed=2)
    if first.output is None or out is None or same(first.output, out):
        return None
    second = again(case, case.x, seed=2)
    if len(first.nodes) != len(second.nodes):
        return None
    for one, two in zip(first.nodes, second.nodes, strict=True):
        if same(one.value, two.value):
            continue
        line, column, statement = file.at(one.entry.place)
        return Finding(
            line,
            column,
            statement,
            "dropout",
            "In eval mode two runs on the same input differ, and they part here: dropout stays "
            "on when it should be off.",
            "dropout_p=self.dropout if self.training else 0.0, or an nn.Dropout layer",
            "other numbers each time",
            seen_at=line,
            node=one,
        )
    return None


def plainly(
    case: "Case", x: torch.Tensor, module: nn.Module | None = None, seed: int = 1
) -> tuple[torch.Tensor | None, Exception | None]:
    """(output, error) of a run that is not recorded."""
    torch.default_generator.manual_seed(seed)
    with torch.no_grad():
        try:
            result = case.forward(module or case.module, x)
        except Exception as error:
            return None, error
    return next(tensors_in(result), None), None


def again(
    case: "Case",
    x: torch.Tensor,
    module: nn.Module | None = None,
    seed: int = 1,
    small: int = 65_536,
) -> Run:
    module = module or case.module
    torch.default_generator.manual_seed(seed)
    state = state_of(module) if module is not case.module else case.weights
    weights = {path: state[path] for path in case.weights if path in state}
    return record(module, case.call(module, x), x, case.file, small, weights)


def same(one: torch.Tensor, two: torch.Tensor) -> bool:
    return one.shape == two.shape and bool(
        ((one == two) | ((one != one) & (two != two))).all()
    )


def mha_heads(case: "Case") -> Heads | None:
    """The heads of PyTorch's own multi-head attention, from the weights it was given."""
    assert case.run is not None
    if not case.run.fused:
        return None
    args, kwargs = case.run.fused[0]
    names = ("query", "key", "value", "E", "H", "in_proj_weight", "in_proj_bias")
    given = dict(zip(names, args, strict=False)) | kwargs
    weight, bias = given.get("in_proj_weight"), given.get("in_proj_bias")
    H, E = args[4] if len(args) > 4 else given["num_heads"], given["query"].shape[-1]
    if weight is None or weight.shape[-1] != E:
        return None
    B, T = (
        (case.x.shape[0], case.x.shape[1])
        if case.x.dim() == 3
        else (1, case.x.shape[0])
    )
    parts = []
    for number, name in enumerate(("query", "key", "value")):
        value = token_first(given[name].detach().double(), case, B, T)
        if value is None:
            return None
        rows_ = slice(number * E, (number + 1) * E)
        value = value @ weight[rows_].detach().double().T
        if bias is not None:
            value = value + bias[rows_].detach().double()
        parts.append(value.view(B, T, H, E // H).transpose(1, 2))
    q, k, v = parts
    return Heads(q, k, v, roles={"q": [], "k": [], "v": []})


def token_first(
    value: torch.Tensor, case: "Case", B: int, T: int
) -> torch.Tensor | None:
    """What was handed over as (tokens, sequences, features), as (B, T, features) by the
    numbers: the module's x may have been turned round, or not, on the way."""
    if value.dim() == 2:
        value = value[:, None]
    if tuple(value.shape[:2]) == (T, B):
        return value.transpose(0, 1)
    if tuple(value.shape[:2]) == (B, T):
        return value
    return None


# ---------------------------------------------------------------- after a clean run


def first_fault(case: "Case") -> Diagnosis | None:
    """The first of the further probes that finds something, as a diagnosis."""
    file = File(case.file)
    for probe in (
        hidden_tensors,
        unused_layers,
        gradients,
        train_mode,
        half_precision,
        other_device,
        other_lengths,
        strong_scores,
        bias_flag,
        width_not_divisible,
    ):
        finding = probe(case, file)
        if finding is not None:
            result = Diagnosis(case.file, "fault")
            apply(result, finding)
            return result
    return None


def made_at(case: "Case", file: File, path: str) -> tuple[int | None, int | None, str]:
    """Where the constructor makes what a path names: the last attribute in a class."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        try:
            owner, name = owner_of(case.module, ".".join(parts[:end]))
        except (AttributeError, KeyError, IndexError, TypeError, ValueError):
            continue
        if isinstance(owner, nn.Module) and file.tree is not None:
            place = file.constructor(owner, name, local=False)
            if place is not None:
                return file.at(place)
    return None, None, ""


def reads(case: "Case", tensor: torch.Tensor) -> Node | None:
    """The first operation that reads a tensor (or a view of it)."""
    key = tensor.untyped_storage()._cdata
    assert case.run is not None
    for node in case.run.nodes:
        if any(t.untyped_storage()._cdata == key for t in node.entry.inputs):
            return node
    return None


def hidden_tensors(case: "Case", file: File) -> Finding | None:
    """Weights that `parameters()` lacks, and masks that are not buffers."""
    known = {id(t) for t in (*case.module.parameters(), *case.module.buffers())}
    held = sorted(
        state_of(case.module).items(), key=lambda pair: pair[0] not in case.weights
    )
    for path, tensor in held:
        if id(tensor) in known or tensor.dim() == 0:
            continue
        node = reads(case, tensor)
        if node is None:
            continue
        weight = isinstance(tensor, nn.Parameter) or path in case.weights
        listed = any(part.isdigit() for part in path.split(".")[1:2]) and weight
        top = path.split(".")[0] if listed else path
        line, column, statement = made_at(case, file, top)
        if line is None:
            line, column, statement = file.at(node.entry.place)
        if weight:
            why = (
                "are in a plain list, which nn.Module does not look into"
                if listed
                else "is an ordinary tensor, not an nn.Parameter"
            )
            what = f"The weights in {top!r} {why}" if listed else f"{path!r} {why}"
            return Finding(
                line,
                column,
                statement,
                "training",
                f"{what}: parameters() does not list them, so an optimiser never trains them and "
                "to(device) and state_dict() leave them out.",
                "nn.ModuleList([...]) for layers, nn.Parameter(...) for tensors",
                f"{path} outside parameters()",
                seen_at=node.line,
                node=node,
            )
        if takes_device(case) and re.search(r"\bdevice\b", statement):
            continue  # made on the device that the constructor was told
        return Finding(
            line,
            column,
            statement,
            "device",
            f"{path!r} is an ordinary attribute, not a buffer: it stays behind when the module "
            "moves to another device.",
            f'self.register_buffer("{path.rpartition(".")[2]}", ...)',
            f"{path} outside buffers()",
            seen_at=node.line,
            node=node,
        )
    return None


def takes_device(case: "Case") -> bool:
    """Whether the constructor is told the device."""
    with contextlib.suppress(TypeError, ValueError):
        return "device" in inspect.signature(type(case.module)).parameters
    return False


def unused_layers(case: "Case", file: File) -> Finding | None:
    """Layers that the constructor makes and the output does not depend on."""
    run = case.run
    assert run is not None
    assert run.output is not None
    used = {path for node in run.nodes for path in node.params}
    inner = {
        id(p)
        for m in case.module.modules()
        if isinstance(m, nn.MultiheadAttention)
        for p in m.parameters()
    }
    for path, tensor in case.weights.items():
        if path in used or tensor.dim() < 2 or id(tensor) in inner:
            continue
        if any(t is tensor for node in run.nodes for t in node.entry.inputs):
            continue
        if any(t is tensor for name, t in case.weights.items() if name in used):
            continue
        line, column, statement = made_at(case, file, path.removesuffix(".weight"))
        return Finding(
            line,
            column,
            statement,
            "output" if case.judgement and path.rpartition(".")[0] else "projection",
            f"{path!r} is made and never used: the output does not depend on it.",
            "use it in forward, or do not make it",
            "no operation reads it",
            seen_at=line,
        )
    return None


def gradients(case: "Case", file: File) -> Finding | None:
    """A weight that the output depends on and no gradient reaches."""
    module = copy.deepcopy(case.module)
    state = state_of(module)
    weights = {path: state[path] for path in case.weights if path in state}
    for tensor in weights.values():
        if tensor.is_leaf:
            tensor.requires_grad_(True)
    torch.default_generator.manual_seed(1)
    try:
        with torch.enable_grad():
            out = next(tensors_in(case.forward(module, case.x)), None)
    except Exception:
        return raises_with_gradients(case, file, module, weights)
    if out is None:
        return None
    leaves = {path: t for path, t in weights.items() if t.is_leaf and t.dim() >= 2}
    lost = list(leaves)
    if out.requires_grad:
        with torch.enable_grad():
            total = out.pow(2).sum()
        found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
        lost = [path for path, grad in zip(leaves, found, strict=True) if grad is None]
    if not lost:
        return None
    torch.default_generator.manual_seed(1)
    run = record(
        module,
        case.call(module, case.x),
        case.x,
        case.file,
        weights=weights,
        grad=True,
    )
    for node in run.nodes:
        before = [t for t in node.entry.inputs if t.requires_grad]
        if (
            before
            and not node.entry.tensor.requires_grad
            and node.entry.tensor.is_floating_point()
        ):
            line, column, statement = file.at(node.entry.place)
            return Finding(
                line,
                column,
                statement,
                "training",
                f"No gradient goes through it: {lost[0]!r} is used and never trained.",
                "the tensor itself, without detach(), .data or no_grad()",
                "a result cut off from its weights",
                seen_at=line,
                node=case.run.nodes[node.index]
                if case.run and node.index < len(case.run.nodes)
                else None,
            )
    reader = next((n for n in run.nodes if lost[0] in n.params), None)
    line, column, statement = file.at(reader.entry.place if reader else None)
    return Finding(
        line,
        column,
        statement,
        "training",
        f"No gradient reaches {lost[0]!r}: it is used and never trained.",
        "a forward pass that autograd can follow",
        "no gradient",
        seen_at=line,
    )


def raises_with_gradients(
    case: "Case", file: File, module: nn.Module, weights: dict[str, torch.Tensor]
) -> Finding | None:
    """A change in place, mostly, that autograd refuses."""
    call = case.call(module, case.x)
    run = record(module, call, case.x, case.file, weights=weights, grad=True)
    if run.error is None:
        return None
    line, column, statement = file.at(run.place)
    return Finding(
        line,
        column,
        statement,
        "training",
        "Without gradients it runs; with them, as in training, it raises "
        f"{first_line(run.error)}",
        "a new tensor, not one changed in place",
        first_line(run.error),
        seen_at=line,
    )


def train_mode(case: "Case", file: File) -> Finding | None:
    """Dropout in the wrong place, of the wrong strength, or lost, in train mode."""
    if case.judgement is None:
        return None
    module = copy.deepcopy(case.module)
    module.train()
    rate = (
        case.sizes.p
        if case.built is not None and "p" in case.built.named.values()
        else None
    )
    layers = {
        n: m for n, m in module.named_modules() if isinstance(m, nn.Dropout) and m.p > 0
    }
    for name, layer in layers.items():
        used = (
            any(abs(other.p - rate) < 1e-9 for other in layers.values())
            if rate
            else True
        )
        keeps = rate is not None and abs(layer.p - (1 - rate)) < 1e-9
        if rate is not None and (not used or keeps):
            line, column, statement = made_at(case, file, name)
            return Finding(
                line,
                column,
                statement,
                "dropout",
                f"The constructor is asked for a dropout rate of {rate:g}, and {name!r} is made with {layer.p:g}.",
                "nn.Dropout(dropout)",
                f"p = {layer.p:g}",
                seen_at=line,
            )
    run = again(case, case.x, module, seed=3)
    first = case.run
    assert first is not None
    if run.error is not None and "view size is not" in str(run.error):
        # the layout that a fused call leaves depends on the device and on dropout
        case.notes.append(
            f"In train mode, on the CPU, line {run.place.line if run.place else '?'} "
            f"raises: {first_line(run.error)}"
        )
        return None
    if run.error is not None:
        line, column, statement = file.at(run.place)
        return Finding(
            line,
            column,
            statement,
            "dropout",
            f"In train mode it raises {first_line(run.error)}; in eval mode it does not.",
            got=first_line(run.error),
            seen_at=line,
        )
    aligned = len(run.nodes) == len(first.nodes) and all(
        a.line == b.line and a.value.shape == b.value.shape
        for a, b in zip(run.nodes, first.nodes, strict=False)
    )
    if not aligned:
        return None
    random, elsewhere, on_contexts = 0, False, None
    moved: set[Node] = set()
    for node, calm in zip(run.nodes, first.nodes, strict=True):
        if not node.uses_x or same(node.value, calm.value):
            continue
        random += 1
        moved.add(node)
        if any(n in moved for n in node.inputs):
            continue
        line, column, statement = file.at(node.entry.place)
        if not node.used:
            return Finding(
                line,
                column,
                statement,
                "result thrown away",
                "Dropout returns a new tensor; nothing takes it, so nothing is dropped.",
                "weights = self.dropout(weights)",
                "a tensor that nothing reads",
                seen_at=line,
                node=node,
            )
        label = case.judgement.labels.get(calm)
        name = label.stage.name if label is not None else ""
        if name.startswith("scores"):
            return Finding(
                line,
                column,
                statement,
                "dropout",
                "In train mode dropout sets scores to zero before the softmax; a zero score is no "
                "blocked token, its weight is still exp(0).",
                "weights = self.dropout(torch.softmax(scores, dim=-1))",
                "dropout on the scores",
                seen_at=line,
                node=node,
            )
        if "not normalised" in name or "not renormalised" in name:
            return Finding(
                line,
                column,
                statement,
                "dropout",
                "In train mode dropout comes before the rows are made to sum to 1, which undoes its "
                "scaling: every row still sums to 1.",
                "weights = self.dropout(weights), once the rows sum to 1",
                f"dropout on the {name}",
                seen_at=line,
                node=node,
            )
        before = [case.judgement.labels.get(n) for n in calm.inputs]
        if name == "contexts" and [b.stage.name for b in before if b is not None] == [
            "contexts"
        ]:
            on_contexts = on_contexts or node
        else:
            elsewhere = True
        if label is not None and label.stage.rank in (1, 2) and not label.index:
            return Finding(
                line,
                column,
                statement,
                "dropout",
                f"In train mode dropout falls on the {name}, not on the attention weights.",
                "weights = self.dropout(torch.softmax(scores, dim=-1))",
                f"dropout on the {name}",
                seen_at=line,
                node=node,
            )
        if name == "weights":
            kept = (node.value != 0) & (calm.value > 1e-9)
            ratio = (node.value[kept] / calm.value[kept]).unique()
            p = float((node.value[calm.value > 1e-9] == 0).double().mean())
            if ratio.numel() and float(ratio.max() - ratio.min()) < 1e-6 * float(
                ratio.max().abs()
            ):
                times = float(ratio[0])
                rates = dropout_rates(case, module)
                if rates and all(abs(times - 1 / (1 - r)) > 1e-4 for r in rates):
                    rate = case.sizes.p if case.sizes.p in rates else max(rates)
                    return Finding(
                        line,
                        column,
                        statement,
                        "dropout",
                        f"With p = {rate:g} dropout should keep weights at 1/(1-p) = {1 / (1 - rate):.4g} "
                        f"times their value; here they are {times:.4g} times, and {p:.0%} are dropped.",
                        "nn.Dropout(p)",
                        f"survivors times {times:.4g}",
                        seen_at=line,
                        node=node,
                    )
    if on_contexts is not None and not elsewhere:
        line, column, statement = file.at(on_contexts.entry.place)
        return Finding(
            line,
            column,
            statement,
            "dropout",
            "In train mode dropout falls on single features of the contexts; no attention weight is dropped.",
            "weights = self.dropout(torch.softmax(scores, dim=-1))",
            "dropout on the contexts",
            seen_at=line,
            node=on_contexts,
        )
    if not random and (layers or rate is not None):
        layer_path = next(iter(layers), None)
        if layer_path is None:
            layer_path = next(
                (
                    n
                    for n, m in module.named_modules()
                    if isinstance(m, nn.MultiheadAttention)
                ),
                None,
            )
        line, column, statement = (
            made_at(case, file, layer_path) if layer_path else (None, None, "")
        )
        if line is None:
            line, column, statement = file.at(file.definition(case.module, "__init__"))
        what = (
            f"The dropout layer {layer_path!r} is made and never called"
            if layers
            else "The dropout rate is taken and never used"
        )
        return Finding(
            line,
            column,
            statement,
            "dropout",
            f"{what}: in train mode nothing is dropped.",
            "weights = self.dropout(weights)",
            "no dropout",
            seen_at=line,
        )
    return None


def dropout_rates(case: "Case", module: nn.Module) -> set[float]:
    """The rates that a layer has, or that the constructor was asked for."""
    rates = {m.p for m in module.modules() if isinstance(m, nn.Dropout)}
    if case.built is not None and "p" in case.built.named.values():
        rates.add(case.sizes.p)
    return {rate for rate in rates if 0 < rate < 1}


def half_precision(case: "Case", file: File) -> Finding | None:
    """Numbers that float16 cannot hold, such as -1e9 in a masked_fill."""
    module = copy.deepcopy(case.module)
    cast(module, case, torch.float16)
    if plainly(case, case.x.half(), module)[1] is None:
        return None
    run = again(case, case.x.half(), module)
    if run.error is None:
        return None
    if (
        run.error is not None and "same dtype" in str(run.error)
    ) or "scalar type" in str(run.error):
        line, column, statement = file.at(run.place)
        return Finding(
            line,
            column,
            statement,
            "precision",
            f"In half precision (float16) two number types meet here: {first_line(run.error)}.",
            "masks and weights in the scores' own dtype, such as weights.to(values.dtype)",
            first_line(run.error),
            seen_at=line,
        )
    if run.error is None or "overflow" not in str(run.error):
        return None
    line, column, statement = file.at(run.place)
    if "mask=" in case.said:  # the caller's, in the caller's number type
        case.notes.append(
            f"In half precision (float16) line {line} raises: {run.error}; "
            "torch.finfo(scores.dtype).min is low enough in every type."
        )
        return None
    return Finding(
        line,
        column,
        statement,
        "mask",
        f"In half precision (float16, largest number 65504) it raises: {run.error}.",
        "-torch.inf, or torch.finfo(scores.dtype).min",
        first_line(run.error),
        seen_at=line,
    )


def cast(module: nn.Module, case: "Case", dtype: torch.dtype) -> None:
    module.to(dtype)
    for path in case.hidden:
        tensor = state_of(module).get(path)
        if tensor is not None and tensor.is_floating_point():
            if isinstance(tensor, nn.Parameter):
                tensor.data = tensor.data.to(dtype)
            else:
                set_at(module, path, tensor.to(dtype))


def other_device(case: "Case", file: File) -> Finding | None:
    """Tensors that forward makes on the CPU whatever device the module is on."""
    assert case.run is not None
    for entry, tensor in case.run.mixed:
        maker = case.run.node_of(tensor)
        return cpu_finding(case, file, entry.place, entry.place.line, maker)
    return None


def cpu_finding(
    case: "Case", file: File, place: Place | None, seen: int | None, maker: Node | None
) -> Finding:
    while maker is not None and any(m is not None for _, m in maker.constants):
        maker = next(m for _, m in maker.constants if m is not None)
    line, column, statement = file.at(maker.entry.place if maker is not None else place)
    return Finding(
        line,
        column,
        statement,
        "device",
        "It makes a tensor on the CPU whatever device the input is on; on a GPU the next use of "
        "it raises.",
        "device=x.device, or a buffer",
        "a tensor on the CPU",
        seen_at=seen,
        node=None,
    )


def outputs(case: "Case", x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        result = case.forward(case.module, x)
    while isinstance(result, tuple | list):
        result = result[0]
    return result


def other_lengths(case: "Case", file: File) -> Finding | None:
    """One token alone, a full context, and a longer input than that."""
    if case.x.dim() != 3:
        return None
    B, T, C = case.x.shape
    generator = torch.Generator().manual_seed(5)
    told = case.built is None or "context" in case.built.named.values()
    context = case.sizes.context if told else T + 6
    far = torch.randn(B, context + 3, C, generator=generator, dtype=torch.float64)
    far[:, :T] = case.x
    base = case.turned(case.run.output) if case.run is not None else None
    if base is None:
        return None
    for name, x, part in (
        ("one sequence of one token", case.x[:1, :1], base[:1, :1]),
        ("one sequence", case.x[:1], base[:1]),
        (
            "an input as long as the context" if context != T + 6 else "a longer input",
            far[:, :context],
            base,
        ),
        ("an input longer than the context", far, base),
    ):
        longer = x.shape[1] > context
        out, error = plainly(case, x.contiguous())
        if error is not None and longer:
            said = first_line(error)
            clear = isinstance(error, ValueError | AssertionError)
            case.notes.append(
                f"An input longer than context_length is refused: {said}"
                + (
                    ""
                    if clear
                    else " (a check of the length would say it more clearly)"
                )
            )
            continue
        if error is not None:
            run = again(case, x.contiguous())
            line, column, statement = file.at(run.place)
            return Finding(
                line,
                column,
                statement,
                "length",
                f"With {name}, shape {tuple(x.shape)}, it raises {first_line(error)}.",
                "sizes read from x.shape, and the mask cut to [:num_tokens, :num_tokens]",
                first_line(error),
                seen_at=line,
            )
        assert out is not None
        wanted = x.shape[:2]
        comparable = case.causal or x.shape[1] == T
        if tuple(out.shape[:2]) != tuple(wanted):
            run = again(case, x.contiguous())
            node = next(
                (
                    n
                    for n in run.nodes
                    if n.uses_x
                    and not set(n.entry.shape) & {x.shape[1], x.shape[0] * x.shape[1]}
                ),
                run.node_of(out),
            )
            line, column, statement = file.at(node.entry.place if node else None)
            return Finding(
                line,
                column,
                statement,
                "length",
                f"With {name}, shape {tuple(x.shape)}, the output has shape {tuple(out.shape)}.",
                f"({wanted[0]}, {wanted[1]}, ...)",
                f"shape {tuple(out.shape)}",
                seen_at=line,
            )
        head = out[: part.shape[0], : part.shape[1]]
        if comparable and not bool(
            (
                (head - part[:, : head.shape[1]]).abs() <= NEAR * (1 + part.abs().max())
            ).all()
        ):
            node = first_mask_node(case)
            line, column, statement = file.at(node.entry.place if node else None)
            return Finding(
                line,
                column,
                statement,
                "length",
                f"With {name}, shape {tuple(x.shape)}, the first tokens' outputs are not those of "
                "the same tokens in another length: tokens are read that should not be.",
                "outputs of a token that depend on it and the tokens before it only",
                "outputs that change with the length",
                seen_at=line,
                node=node,
            )
    return None


def first_mask_node(case: "Case") -> Node | None:
    if case.judgement is None:
        return None
    for node, label in case.judgement.labels.items():
        if "masked" in label.stage.name or label.stage.name in ("weights", "contexts"):
            return node
    return None


def strong_scores(case: "Case", file: File) -> Finding | None:
    """A finite mask value that large scores outweigh."""
    if not case.causal or case.judgement is None or case.x.dim() != 3:
        return None
    finite = [
        n
        for n, label in case.judgement.labels.items()
        if "masked" in label.stage.name
        and label.stage.name.startswith("scores")
        and bool(torch.isfinite(n.value).all())
    ]
    if not finite:
        return None
    top = float(case.judgement.reference.raw.abs().max()) * case.judgement.heads.D**-0.5
    x = case.x * (30 / max(top, 1e-9)) ** 0.5
    one = outputs(case, x)
    other = x.clone()
    other[:, -1] += 1.0
    two = outputs(case, other)
    T = x.shape[1]
    gap = (one - two)[:, : T - 1].abs().max() / (1 + one.abs().max())
    if float(gap) <= 1e-7 or not bool(torch.isfinite(gap)):
        return None
    node = first_mask_node(case)
    line, column, statement = file.at(node.entry.place if node else None)
    return Finding(
        line,
        column,
        statement,
        "mask",
        "With large scores (up to 30) the blocked tokens get weight again: the mask's number is "
        "not low enough.",
        RIGHT["mask"],
        "earlier outputs that change with the last token",
        seen_at=line,
        node=node,
    )


def bias_flag(case: "Case", file: File) -> Finding | None:
    """A bias flag that does not reach the query, key and value layers."""
    built = case.built
    if (
        built is None
        or built.again is None
        or "bias" not in built.named.values()
        or case.judgement is None
    ):
        return None
    flags = [n for n, what in built.named.items() if what == "bias"]
    try:
        without = built.again(replace(case.sizes, bias=False))
        having = built.again(replace(case.sizes, bias=True))
    except Exception:
        return None
    off, on = biases(without), biases(having)
    layers: dict[str, str] = {}
    for role, ps in case.judgement.heads.roles.items():
        for p in ps[:1]:
            layers.setdefault(p.layer, role)
    for layer in layers:
        wrong = ""
        if not is_linear(without, layer):
            continue
        if layer in off:
            wrong = f"With {flags[0]}=False {layer!r} still has a bias"
        elif layer not in on and (on == off or any(other in on for other in layers)):
            wrong = f"With {flags[0]}=True {layer!r} has no bias"
        if wrong:
            line, column, statement = made_at(case, file, layer)
            outer = made_at(case, file, layer.split(".")[0])[2]
            if "bias=True" in statement + outer and "still" in wrong:
                case.notes.append(f"{wrong}: its constructor says bias=True.")
                continue
            return Finding(
                line,
                column,
                statement,
                "constructor",
                f"{wrong}: the flag does not reach it.",
                f"nn.Linear(d_in, d_out, bias={flags[0]})",
                wrong,
                seen_at=line,
            )
    return None


def biases(module: nn.Module) -> set[str]:
    return {
        n.rpartition(".")[0]
        for n, t in state_of(module).items()
        if n.endswith("bias") and isinstance(t, nn.Parameter)
    }


def is_linear(module: nn.Module, path: str) -> bool:
    try:
        owner, name = owner_of(module, path)
        return isinstance(
            getattr(owner, name)
            if not isinstance(owner, list | tuple)
            else owner[int(name)],
            nn.Linear,
        )
    except (AttributeError, KeyError, IndexError, ValueError):
        return False


@dataclass
class Odd(Sizes):
    """A width that the heads do not divide."""

    @property
    def d_out(self) -> int:
        return self.H * self.D + 1


def width_not_divisible(case: "Case", file: File) -> Finding | None:
    """A width that the number of heads does not divide: refused, or wrong in silence."""
    built, judgement = case.built, case.judgement
    if (
        built is None
        or built.again is None
        or judgement is None
        or judgement.heads.H < 2
    ):
        return None
    told = set(built.named.values())
    if "D" in told or not told & {"d_out", "width"} or "H" not in told:
        return None
    if case.sizes.d_out <= judgement.heads.D:
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
    run = again(case, x, module)
    line, column, statement, setting = floored(case, file, module, odd)
    if run.error is None and "config=..." in built.how:
        case.notes.append(
            f"With a made-up config, a width of {odd.d_out} and {odd.H} heads is accepted."
        )
        return None
    if run.error is None:
        width = run.output.shape[-1] if run.output is not None else None
        if line is not None and width == odd.d_out and "d_out" not in told:
            case.notes.append(
                f"d_out = {odd.d_out} with {odd.H} heads is accepted, and {setting} is "
                f"rounded down to {odd.d_out // odd.H}; the output is as wide as asked."
            )
            return None
        if line is None:
            line, column, statement = file.at(
                run.nodes[0].entry.place if run.nodes else None
            )
        return Finding(
            line,
            column,
            statement,
            "constructor",
            f"d_out = {odd.d_out} with {odd.H} heads is accepted in silence, and the output is {width} wide.",
            "raise where d_out % num_heads != 0",
            f"head_dim rounded down to {odd.d_out // odd.H}",
            seen_at=line,
        )
    own = "d_out" in told  # one width for all is often left to the caller
    if own and run.failed is not None and line is not None and hides_width(run, odd):
        seen = run.place.line if run.place else line
        return Finding(
            line,
            column,
            statement,
            "constructor",
            f"d_out = {odd.d_out} with {odd.H} heads is accepted, {setting} is rounded down to "
            f"{odd.d_out // odd.H}, and only forward fails, with an error that shows neither: "
            f"{first_line(run.error)}.",
            "assert d_out % num_heads == 0, in the constructor",
            first_line(run.error),
            seen_at=seen,
        )
    where = run.place.line if run.place else None
    case.notes.append(
        f"d_out = {odd.d_out} with {odd.H} heads is refused only in forward, at line {where}; "
        "an assert in the constructor would say it sooner."
    )
    return None


def floored(
    case: "Case", file: File, module: nn.Module, odd: Odd
) -> tuple[int | None, int | None, str, str]:
    """The attribute that keeps the width divided and rounded down."""
    for owner in module.modules():
        for name, value in vars(owner).items():
            if (
                type(value) is int
                and value == odd.d_out // odd.H
                and not type(owner).__module__.startswith("torch")
            ):
                place = file.constructor(owner, name)
                if place is not None:
                    return *file.at(place), name
    place = file.floor_division(module)
    if place is not None:
        return *file.at(place), "a quotient"
    return None, None, "", ""


def hides_width(run: Run, odd: Odd) -> bool:
    """Whether the call that failed shows neither the width nor a head's part of it.

    Numbers packed three wide, reshaped to sizes that are all given: the reader sees only
    that two products differ. A -1, or d_out itself as the last axis, gives it away.
    """
    assert run.failed is not None
    args = run.failed[2]
    tensor = next((t for t in args if isinstance(t, torch.Tensor)), None)
    sizes = [s for a in args[1:] for s in (a if isinstance(a, tuple | list) else (a,))]
    return tensor is not None and tensor.shape[-1] == 3 * odd.d_out and -1 not in sizes


# ---------------------------------------------------------------- what was proved


def proved(case: "Case") -> list[str]:
    """Notes for a clean module: what was tried, and what differs from the article."""
    notes = list(case.notes)
    judgement = case.judgement
    if judgement is None:
        return notes
    heads = judgement.heads
    tried = "Also tried, and right: eval mode draws nothing; "
    if case.causal:
        tried += "one token, a full context, large scores; "
    tried += "train mode; half precision; another device; every weight is a parameter and is used."
    notes.insert(0, tried)
    different = []
    if heads.layout:
        different.append(
            f"one packed layer holds the roles, in the order ({heads.layout.replace('3', 'qkv').replace('2', 'kv')})"
        )
    if any(len(ps) > 1 for ps in heads.roles.values()):
        different.append("every head has layers of its own")
    if heads.changed == "rotated":
        different.append(
            "queries and keys are turned by their positions (rotary), each vector's length kept"
        )
    if heads.kv_heads:
        different.append(
            f"{heads.kv_heads} key and value heads serve {heads.H} query heads"
        )
    names = {label.stage.name for label in judgement.labels.values()}
    if any("scaled" in n and n.startswith(("queries", "keys")) for n in names):
        different.append("the scale is put on queries or keys before the product")
    if "weights, masked, not renormalised" in names and "weights" in names:
        different.append(
            "the mask comes after the softmax, and the rows are made to sum to 1 again"
        )
    if (
        "scores" not in names
        and "scores, scaled" not in names
        and "weights" not in names
    ):
        different.append("scores, mask, softmax and values are one fused call")
    if not case.causal:
        different.append("every token reads every token (no mask)")
    if different:
        notes.insert(
            0, "Different from the article, and right: " + "; ".join(different) + "."
        )
    if case.said.count(",") and "mask" in case.said:
        notes.append(f"The mask is the caller's: forward was called with {case.said}.")
    return notes


# ---------------------------------------------------------------- without heads


def constructor_raised(
    cls: type, file_name: str, sizes: Sizes, error: Exception
) -> Diagnosis:
    """The constructor raised at the probe's sizes."""
    file = File(file_name)
    place = place_of(error, file_name)
    line, column, statement = file.at(place)
    shown = ", ".join(
        f"{k}={v!r}" for k, v in fill(cls, sizes, {}).items() if not isinstance(v, dict)
    )
    call = f"{cls.__name__}({shown})"
    last = traceback.extract_tb(error.__traceback__)[-1]
    own = last.filename == file_name and statement.lstrip().startswith(
        ("raise", "assert")
    )
    ours = last.filename == fill.__code__.co_filename  # a config that lacks the name
    if place is None or own or ours or isinstance(error, AssertionError):
        return Diagnosis(
            file_name,
            "cannot tell",
            message=f"the constructor refuses {call}: {first_line(error)}; "
            f'--build "{cls.__name__}(...)" says how to make it',
        )
    result = Diagnosis(file_name, "fault", examined=call)
    apply(
        result,
        Finding(
            line,
            column,
            statement,
            "constructor",
            f"The constructor, called as {call}, raises {first_line(error)}.",
            got=first_line(error),
            seen_at=line,
        ),
    )
    return result


def without_heads(case: "Case", file: File, result: Diagnosis) -> Diagnosis:
    """Where no queries, keys and values can be found: what raised, or a black-box report."""
    run = case.run
    assert run is not None
    result.trace = rows(case, None, None)
    if run.error is not None:
        finding = raised(case, file)
        own = run.failed is None and finding.statement.lstrip().startswith(
            ("raise", "assert")
        )
        if own or run.place is None:
            result.verdict = "cannot tell"
            result.message = (
                f"forward, called with {case.said} of shape {tuple(case.x.shape)}, raises "
                f"{first_line(run.error)}"
                + (f" at line {finding.line}" if finding.line else "")
            )
            return result
        apply(result, finding)
        return result
    turned = next(
        (
            n
            for n in run.nodes
            if n.reads_x
            and n.entry.origin != "computed"
            and n not in case.plain
            and sorted(n.entry.shape) == sorted(case.x.shape)
        ),
        None,
    )
    if turned is not None and not case.found:
        line, column, statement = file.at(turned.entry.place)
        apply(
            result,
            Finding(
                line,
                column,
                statement,
                "split",
                f"It deals x out into shape {tuple(turned.entry.shape)} in the order of memory: the numbers of one "
                "token end up in another sequence's or token's place.",
                "x.transpose(0, 1)",
                "tokens in the wrong places",
                seen_at=line,
                node=turned,
            ),
        )
        mark(result)
        return result
    result.verdict = "cannot tell"
    said = black_box(case)
    leaks = [text for bad, text in said if bad]
    result.notes = [text for bad, text in said if not bad]
    found = len(case.found)
    reason = (
        f"Black-box report: {found} projection{'s' if found != 1 else ''} of x found, which is too few to "
        "tell queries, keys and values apart, so only the outputs were compared."
    )
    result.message = reason
    if leaks:
        node = run.node_of(run.output) if run.output is not None else None
        from steps.debugger.explain import return_place

        line, column, statement = file.at(return_place(case, file, node))
        apply(
            result,
            Finding(
                line, column, statement, "black box", f"{reason} {' '.join(leaks)}"
            ),
        )
    return result


def black_box(case: "Case") -> list[tuple[bool, str]]:
    """(bad, sentence) for what outputs alone can show."""
    x = case.x
    said: list[tuple[bool, str]] = []
    try:
        out = outputs(case, x)
    except Exception as error:
        return [(False, f"It raises {first_line(error)}.")]
    if not isinstance(out, torch.Tensor) or out.shape[: x.dim() - 1] != x.shape[:-1]:
        shape = (
            tuple(out.shape) if isinstance(out, torch.Tensor) else type(out).__name__
        )
        return [(False, f"The output is {shape} for an input of {tuple(x.shape)}.")]
    if bool(out.isnan().any()):
        said.append((True, "The output has NaN."))
        return said
    T = x.shape[-2]
    near = NEAR * (1 + float(out.abs().max()))
    other = x.clone()
    other[..., T - 1, :] += 1.0
    moved = (outputs(case, other) - out).abs()
    ahead = bool((moved[..., : T - 1, :] > near).any())
    if case.claims:
        said.append(
            (
                ahead,
                "Changing the last token changes earlier outputs: it is not causal."
                if ahead
                else "Changing the last token leaves earlier outputs as they were: it is causal.",
            )
        )
        short = outputs(case, x[..., : T - 1, :].contiguous())
        stable = bool(((short - out[..., : T - 1, :]).abs() <= near).all())
        said.append(
            (
                not stable and not ahead,
                "A shorter input has the same outputs for its tokens."
                if stable
                else "A shorter input has other outputs for the same tokens.",
            )
        )
    else:
        said.append(
            (
                False,
                "Changing the last token changes earlier outputs: it is not causal, and does not claim to be."
                if ahead
                else "Changing the last token leaves earlier outputs as they were.",
            )
        )
    if x.dim() == 3 and x.shape[0] > 1:
        alone = outputs(case, x[:1].contiguous())
        apart = bool(((alone - out[:1]).abs() <= near).all())
        said.append(
            (
                not apart,
                "A sequence alone has the same outputs as in a batch."
                if apart
                else "A sequence alone has other outputs than in a batch: sequences are mixed.",
            )
        )
    return said


__all__ = ["WORDS", "Any", "Place", "first_fault", "path_of", "proved"]
