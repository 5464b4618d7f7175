"""Label each operation of a run with its stage; find the first that holds none."""

import math
import re
from dataclasses import dataclass, field

from steps.debugger.roles import Heads, Projection, role_in
from steps.debugger.run import Node, Run
from steps.debugger.stages import Label, Reference, Stage
from steps.pytorch import torch
from steps.walk.recorder import storage

OUTPUT, CONTEXTS, AFTER = 8, 7, 9
BHTD, BHSD = ("B", "H", "T", "D"), ("B", "H", "S", "D")
SHARED = ", each for several heads"  # keys and values that are still to be repeated


@dataclass
class Judgement:
    """One reading of a run: what each operation holds, and the first wrong one."""

    heads: Heads
    reference: Reference
    labels: dict[Node, Label] = field(default_factory=dict)
    good: set[Node] = field(default_factory=set)
    fault: Node | None = None
    at_failure: bool = False  # the operation that raised is itself the first wrong one
    returned: str = ""  # what was returned, where that is not the output
    changed_after: Node | None = None  # what makes other numbers of the right output
    progress: int = 0
    conflicts: int = 0
    named: int = 0
    out_weights: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        wrong = self.fault or self.at_failure or self.returned or self.changed_after
        return not wrong


def judge(
    run: Run,
    heads: Heads,
    found: list[Projection],
    plain: dict[Node, str],
    causal: bool,
    weights: dict[str, torch.Tensor],
    tokens_first: bool = False,
) -> Judgement:
    """Label the run's operations under one reading of its projections.

    tokens_first: what it returns is to be (tokens, sequences, features).
    """
    reference = Reference(heads.q, heads.k, heads.v, causal, heads.strided)
    verdict = Judgement(heads, reference)
    labels = verdict.labels
    role_paths = {path for p in found for path in p.paths}
    add_packed(reference, heads)
    add_given(reference, heads)
    outputs = add_outputs(reference, heads, weights, role_paths)
    spare = any(t.dim() >= 2 and path not in role_paths for path, t in weights.items())
    projected = {p.node: p for p in found}
    named = {node: (name, 0) for node, name in plain.items()}
    named |= {n: ("a projection, before its bias", 1) for p in found for n in p.parts}
    for node in run.nodes:
        if not node.uses_x:
            continue
        if node in named:
            name, rank = named[node]
            labels[node] = Label(Stage(name, node.value, (), rank), [])
            continue
        label = reference.label(node.value)
        if node in projected and only_projected(projected[node], label):
            used = any(projected[node] in ps for ps in heads.roles.values())
            name = "a projection" if used else "another projection"
            label = Label(Stage(name, node.value, (), 1), [])
        label = (
            label or row_sums(node, labels) or output_label(node, labels, heads, spare)
        )
        if label is not None:
            labels[node] = label
            if label.stage.rank == OUTPUT:
                new = (p for p in node.params if p not in verdict.out_weights)
                verdict.out_weights += new
    settle(run, verdict, bool(outputs), tokens_first)
    if heads.layout or not heads.named:
        name_conflicts(verdict)
    verdict.conflicts += heads.conflicts
    verdict.named += heads.named
    return verdict


def add_given(reference: Reference, heads: Heads) -> None:
    """Queries and keys before they are turned; keys and values that several share."""
    base = heads.base
    given = {"keys": heads.k, "values": heads.v}
    if base is not None:
        given["keys, as projected"] = base[1]
        reference.stages += [
            Stage("queries, as projected", base[0], BHTD, 1),
            Stage("keys, as projected", base[1], BHSD, 1),
        ]
    if heads.kv_heads:
        repeats = heads.H // heads.kv_heads
        reference.stages += [
            Stage(f"{name}{SHARED}", tensor[:, ::repeats], BHSD, 1)
            for name, tensor in given.items()
        ]


def only_projected(p: Projection, label: Label | None) -> bool:
    """Whether what a layer makes of x is to be called that, and no stage."""
    if label is not None and label.stage.rank <= 2:
        return False
    node = p.node
    scaled = not torch.equal(node.value.double().reshape(-1), p.value.reshape(-1))
    return not (scaled and node.entry.function == "linear" and own_weight(p))


def own_weight(p: Projection) -> bool:
    """Whether a linear call was given what was made from the weight, not the weight."""
    call = p.node.entry.call
    if call is None or len(call[1]) < 2:
        return False
    given = call[1][1]
    return all(
        given is not t and storage(given) != storage(t) for t in p.node.params.values()
    )


def stages_read(judgement: Judgement) -> set[str | None]:
    """The stages that the first wrong operation reads, by name; None for no stage."""
    inputs = judgement.fault.inputs if judgement.fault is not None else []
    labels = [judgement.labels.get(node) for node in inputs]
    return {
        None if label is None else label.stage.name.split(",")[0] for label in labels
    }


def add_packed(reference: Reference, heads: Heads) -> None:
    if "3" in heads.layout and heads.k.shape == heads.q.shape:
        whole = torch.stack([heads.q, heads.k, heads.v])
        axes = ("3", "B", "H", "T", "D")
        reference.stages.append(Stage("queries, keys, values", whole, axes, 1))
        swapped = torch.stack([heads.v, heads.k, heads.q])
        reference.stages.append(Stage("queries, keys, values", swapped, axes, 1))


def add_outputs(
    reference: Reference,
    heads: Heads,
    weights: dict[str, torch.Tensor],
    role_paths: set[str],
) -> list[Stage]:
    """The output stage for every weight that could be the output projection."""
    order = (0, 2, 3, 1) if reference.strided else (0, 2, 1, 3)
    joined = reference.contexts.permute(order).flatten(2)
    width = joined.shape[-1]
    made = []
    biases: list[torch.Tensor | None] = [None]
    biases += [t for t in weights.values() if t.dim() == 1]
    for path, tensor in weights.items():
        while tensor.dim() > 2 and tensor.shape[-1] == 1:  # a 1-wide convolution
            tensor = tensor.squeeze(-1)
        if path in role_paths or tensor.dim() < 2 or tensor.numel() % width:
            continue
        matrices = []
        size = tensor.numel() // width
        if tensor.shape[0] == width or (
            tensor.dim() == 3 and tensor.shape[0] == heads.H
        ):
            matrices.append(tensor.reshape(width, size))
        if tensor.shape[-1] == width:
            matrices.append(tensor.reshape(size, width).T)
        if tensor.dim() == 3 and tensor.shape[1:] == (heads.H, heads.D):
            matrices.append(tensor.reshape(size, width).T)
        own = (
            weights.get(path.removesuffix("weight") + "bias")
            if path.endswith("weight")
            else None
        )
        choices = [own] if own is not None else biases
        for matrix in matrices:
            for bias in choices:
                if bias is not None and bias.shape[0] != size:
                    continue
                value = joined @ matrix.double()
                if bias is not None and own is not None:
                    before = Stage(
                        "output, before its bias", value, ("B", "T", "E"), OUTPUT - 1
                    )
                    made.append(before)
                if bias is not None:
                    value = value + bias.double()
                made.append(Stage("output", value, ("B", "T", "E"), OUTPUT))
    made += per_head_outputs(reference, heads, weights, role_paths)
    reference.stages += made
    return made


def per_head_outputs(
    reference: Reference,
    heads: Heads,
    weights: dict[str, torch.Tensor],
    role_paths: set[str],
) -> list[Stage]:
    """The output where each head has a projection of its own and these are summed."""
    lists: dict[str, list[str]] = {}
    for path, tensor in weights.items():
        if path not in role_paths and tensor.dim() == 2 and heads.D in tensor.shape:
            lists.setdefault(re.sub(r"\.\d+", "", path), []).append(path)
    for paths in lists.values():
        if len(paths) != heads.H or heads.H < 2:
            continue
        value: torch.Tensor | None = None
        for h, path in enumerate(paths):
            matrix = weights[path].double()
            matrix = matrix.T if matrix.shape[-1] == heads.D else matrix
            part = reference.contexts[:, h] @ matrix
            bias = weights.get(path.removesuffix("weight") + "bias")
            if bias is not None and path.endswith("weight"):
                part = part + bias.double()
            value = part if value is None else value + part
        assert value is not None
        biases = [t for t in weights.values() if t.shape == value.shape[-1:]]
        sums = [value, *(value + bias.double() for bias in biases)]
        return [Stage("output", total, ("B", "T", "E"), OUTPUT) for total in sums]
    return []


def row_sums(node: Node, labels: dict[Node, Label]) -> Label | None:
    """The sums of weights that are not normalised yet, over their keys."""
    if len(node.inputs) != 1 or node.inputs[0] not in labels:
        return None
    before, label = node.inputs[0].value, labels[node.inputs[0]]
    if (
        "not " not in label.stage.name
        or not label.stage.name.startswith("weights")
        or "S" not in label.axes
    ):
        return None
    sums = before.sum(label.axes.index("S"))
    if sums.numel() != node.value.numel() or sums.dtype != node.value.dtype:
        return None
    if not bool(
        torch.isclose(sums.reshape(-1), node.value.reshape(-1), rtol=1e-6).all()
    ):
        return None
    return Label(Stage("row sums", node.value, (), 5), [])


def output_label(
    node: Node, labels: dict[Node, Label], heads: Heads, spare: bool
) -> Label | None:
    """What comes after the contexts: a projection of them, and what follows that."""
    inputs = [labels.get(n) for n in node.inputs]
    if not inputs or any(label is None for label in inputs):
        return None
    ranks = [label.stage.rank for label in inputs if label is not None]
    done = OUTPUT if spare else CONTEXTS
    if not any(rank >= done for rank in ranks):
        return None
    if any(1 <= rank < done for rank in ranks) or any(
        label.stage.part for label in inputs if label is not None
    ):
        return None
    for label in filter(None, inputs):
        if (
            label.stage.rank == CONTEXTS
            and heads.H > 1
            and label.axes[-1:] not in (["H*D"], ["D*H"])
        ):
            return None
    if node.entry.origin != "computed" and not joins(inputs):
        return None
    wide = [p for p in node.params if node.params[p].dim() >= 2]
    earlier = {p for n in labels for p in n.params if n is not node}
    if wide and any(p in earlier for p in wide):
        return None
    B, T = heads.q.shape[0], heads.q.shape[2]
    shape = list(node.value.shape)
    if T not in shape and B * T not in shape:
        return None
    return Label(Stage("after the output", node.value, (), AFTER), [])


def joins(inputs: list) -> bool:
    return all(label.stage.rank >= AFTER for label in inputs)


def settle(
    run: Run, verdict: Judgement, projected: bool, tokens_first: bool = False
) -> None:
    """Decide which operations are good, and find the first that is not."""
    labels = verdict.labels
    ranks = [label.stage.rank for label in labels.values()]
    furthest = max((rank for rank in ranks if rank < AFTER), default=0)
    verdict.progress = furthest * 100 + sum(n in labels for n in run.nodes)
    verdict.good.update(good_nodes(run, labels))
    relevant = ancestors(run)
    for node in run.nodes:
        if node not in relevant or not node.uses_x or node in verdict.good:
            continue
        if verdict.good.issuperset(node.inputs):
            verdict.fault = node
            return
    if run.error is not None:
        verdict.at_failure = True
        return
    output = run.output
    last = run.node_of(output) if output is not None else None
    if last is None:
        made = verdict.reference.label(output) if output is not None else None
        enough = OUTPUT if projected else CONTEXTS
        if made is None or made.stage.rank < enough:
            verdict.returned = "something that no operation of this file made"
    elif label_rank(labels, last) >= AFTER:
        verdict.changed_after = changes_output(run, labels, relevant)
    elif last in labels:
        heads = verdict.heads
        verdict.returned = unfinished(labels[last], heads, projected, tokens_first)


def good_nodes(run: Run, labels: dict[Node, Label]) -> set[Node]:
    """The operations that hold a stage, and those that one is made from."""
    good: set[Node] = set()
    for node in reversed(run.nodes):
        if node in labels:
            good.add(node)
        if node in good and label_rank(labels, node) < AFTER:
            good.update(node.inputs)
    return good


def unfinished(label: Label, heads: Heads, projected: bool, tokens_first: bool) -> str:
    """What is returned in place of the output, "" where it is the output.

    projected: whether the joined contexts go through a layer of their own.
    """
    name, order = label.stage.name, label.order
    if label.stage.part or label.stage.rank < CONTEXTS:
        return name
    if name == "contexts" and heads.H == 1 and label.axes[-1] != "D":
        return "contexts with the features not last"
    apart = heads.H > 1 and not heads.given and label.axes[-1] != "H*D"
    if name == "contexts" and apart:
        return "contexts that are not joined"
    if label.index:
        return f"{name}, {label.index} only"
    if {"B", "T"} <= set(order):
        turned = order.index("T") < order.index("B")
        if turned != tokens_first:
            pair = ("tokens", "sequences") if turned else ("sequences", "tokens")
            return f"{name} with {pair[0]} before {pair[1]}"
    if projected and name == "contexts":
        return "the joined contexts, not projected"
    return ""


NORMS = ("layer_norm", "rms_norm", "group_norm", "batch_norm", "instance_norm")


def changes_output(
    run: Run, labels: dict[Node, Label], relevant: set[Node]
) -> Node | None:
    """The first operation after the output that is no part of a block around attention.

    Sums with the block's input, norms and further layers with weights of their own are
    (see steps.debugger.blocks); so is what leaves every number as it was.
    """
    layers: set[Node] = set()
    for node in run.nodes:
        if node not in relevant or label_rank(labels, node) < AFTER:
            continue
        if node.params or not layers.isdisjoint(node.inputs):
            layers.add(node)
        elif not (
            node.entry.origin != "computed"
            or node.entry.function in NORMS
            or any(alike(node.value, n.value) for n in node.inputs)
            or alike(node.value, total(run, node))
        ):
            return node
    return None


def distance(value: torch.Tensor, label: Label) -> float:
    """The largest difference between a tensor and the stage that it holds."""
    stage = label.stage
    sizes = dict(zip(stage.axes, stage.tensor.shape, strict=True))
    kept = [a for a in label.order if a in sizes]
    if math.prod(sizes[a] for a in kept) != stage.tensor.numel() or label.index:
        return math.nan
    moved = value.double().reshape([sizes[a] for a in kept])
    order = [kept.index(a) for a in stage.axes if a in kept]
    return float(
        (
            moved.permute(order)
            - stage.tensor.reshape([sizes[a] for a in stage.axes if a in kept])
        )
        .abs()
        .max()
    )


def total(run: Run, node: Node) -> torch.Tensor:
    """The sum of what an operation reads that is made of x, x itself included."""
    x = run.x if run.shown is None else run.shown
    parts = [n.value for n in node.inputs] + [x] * node.reads_x
    fitting = [part for part in parts if part.shape == node.value.shape]
    return sum(fitting, torch.zeros(())) if len(fitting) == len(parts) else parts[0]


def alike(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether two tensors have the same numbers in the same places, rounding aside."""
    if one.shape != two.shape or not one.is_floating_point():
        return False
    return bool(torch.isclose(one.double(), two.double(), rtol=1e-5, atol=1e-8).all())


def label_rank(labels: dict[Node, Label], node: Node) -> int:
    return labels[node].stage.rank if node in labels else 0


def ancestors(run: Run) -> set[Node]:
    """The operations that what was returned is made from (or what raised was given)."""
    wanted: list[Node] = []
    if run.error is None:
        node = run.node_of(run.output) if run.output is not None else None
        wanted = [node] if node is not None else []
        # in-place changes of what is returned
        if node is None and run.nodes:
            wanted = [run.nodes[-1]]
    else:
        return set(run.nodes)
    found: set[Node] = set()
    while wanted:
        node = wanted.pop()
        if node not in found:
            found.add(node)
            wanted += node.inputs
    return found


def name_conflicts(verdict: Judgement) -> None:
    """Variables named for one role that hold another, for or against this reading."""
    for node, label in verdict.labels.items():
        role = role_in(node.entry.name.split("[")[0]) if node.entry.name else None
        if role is None or label.stage.rank != 2:
            continue
        if label.stage.name[0] == role:
            verdict.named += 1
        else:
            verdict.conflicts += 1
