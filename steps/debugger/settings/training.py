"""Train mode: dropout in the wrong place, of the wrong strength, or lost."""

from collections.abc import Iterator

from steps.debugger.case import Case
from steps.debugger.explain import behind
from steps.debugger.load import first_line
from steps.debugger.result import Diagnosis
from steps.debugger.run import Node, Run
from steps.debugger.settings.runs import same
from steps.pytorch import nn


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
            )
    return None


def train_mode(case: Case) -> Diagnosis | str | None:
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
        )
    on_x = [node for node, calm in drawn if calm in case.plain]
    if on_x and len(on_x) == len(drawn):
        return case.file.fault(
            on_x[0],
            "dropout",
            "In train mode dropout falls on the input; no attention weight is dropped.",
            "dropout on x",
        )
    on_contexts = [node for node, calm in drawn if holds_contexts(case, calm)]
    if on_contexts and len(on_contexts) == len(drawn):
        return case.file.fault(
            on_contexts[0],
            "dropout",
            "In train mode dropout falls on single features of the contexts; no "
            "attention weight is dropped.",
            "dropout on the contexts",
        )
    never = never_dropped(case) if not drawn else None
    return never or "train mode"


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
    kind, message, got = "dropout", "", f"dropout on the {name}"
    if not node.used and node.entry.function == "dropout":
        kind, got = "result thrown away", "a tensor that nothing reads"
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
    return case.file.fault(node, kind, message, got) if message else None


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
    )


def never_dropped(case: Case) -> Diagnosis | None:
    """A rate, or a layer for it, that train mode does not use."""
    layers = list(dropout_layers(case))
    if not layers and not asked_rate(case):
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
    )
