"""Name the line that is to blame: from the first wrong result back to its cause."""

import ast
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from steps.debugger.arguments import meaning
from steps.debugger.bound import alias, binding, given
from steps.debugger.build import owner_of
from steps.debugger.case import Case, is_clean, is_clean_with
from steps.debugger.judge import AFTER, CONTEXTS
from steps.debugger.load import first_line
from steps.debugger.result import Diagnosis
from steps.debugger.roles import WORDS, Projection, role_in
from steps.debugger.run import Node
from steps.debugger.stages import Label, Stage
from steps.debugger.symptoms import (
    BHTD,
    FOURTH_ROOT,
    UNSCALED,
    first,
    kind_of,
    symptom,
)
from steps.pytorch import nn, torch
from steps.walk.recorder import tensors_in
from steps.walk.source import Place


def blame(case: Case) -> Diagnosis | None:
    """From the first operation without a stage to the one that is to blame."""
    explanations = (
        layer_of_a_role_again,
        name_of_another_role,
        result_thrown_away,
        another_result_returned,
        keys_by_queries,
        weights_unfinished,
        output_changed,
        raised,
        made_wrong,
    )
    return first(explanations, case)


def behind(
    nodes: Iterable[Node], holds: Callable[[Node], bool] = lambda _: True
) -> set[Node]:
    """The nodes and all that they are made from, as far as something holds."""
    found: set[Node] = set()
    todo = list(nodes)
    while todo:
        node = todo.pop()
        if node not in found and holds(node):
            found.add(node)
            todo += node.inputs
    return found


def earliest(node: Node, holds: Callable[[Node], bool]) -> Node:
    """The first operation of the chain up to a node for which something holds."""
    while before := next(filter(holds, node.inputs), None):
        node = before
    return node


# ---------------------------------------------------------------- a wrong route


def layer_of_a_role_again(case: Case) -> Diagnosis | None:
    """An output projection that is one of the query, key and value layers again."""
    fault = case.wrong
    ranks = [case.labels[n].stage.rank for n in case.read if n in case.labels]
    if fault is None or max(ranks, default=0) < CONTEXTS:
        return None
    for p in case.found:
        path = next((path for path in p.paths if path in fault.params), None)
        if p.node is fault or path is None:
            continue
        roles = case.judged.heads.roles.items()
        role = next((WORDS[r] for r, ps in roles if p in ps), "queries")
        made = "." in path and not idle_layer(case)
        return case.file.fault(
            maker_of(case, p) if made else fault,
            "projection",
            f"The output is projected by {p.layer!r}, the layer that makes the {role}.",
            f"{p.layer!r} used for two roles",
            seen_at=fault.line,
            node=fault,
        )
    return None


def idle_layer(case: Case) -> bool:
    """Whether no operation read some matrix of the module: the one that was meant."""
    read = {id(t) for node in case.run.nodes for t in node.params.values()}
    return any(t.dim() >= 2 and id(t) not in read for t in case.weights.values())


def name_of_another_role(case: Case) -> Diagnosis | None:
    """A product that reads a name for one role, which was given another's tensor."""
    fault = case.wrong
    place = binding(case, fault) if fault is not None else None
    if fault is None or place is None or place.line == fault.line:
        return None
    kind, message, got = symptom(case.judged, fault)
    return case.file.fault(place, kind, message, got, seen_at=fault.line, node=fault)


def maker_of(case: Case, p: Projection) -> Place:
    """Where the constructor makes a projection's layer, or the list that it is in."""
    return case.made_at(p.paths[0].split(".")[0], local=True) or p.node.entry.place


def result_thrown_away(case: Case) -> Diagnosis | None:
    """An operation on the same numbers whose result nothing takes."""
    lost = unread(case)
    if lost is None:
        return None
    before, held = (case.labels[n].stage.name for n in (lost.inputs[0], lost))
    later = case.run.nodes[lost.index + 1 :]
    reader = next((n for n in later if lost.inputs[0] in n.inputs), None)
    if lost.entry.name and reader is not None:
        made = lost.entry.name
        kinds = {"masked": "mask", "scaled": "scale"}
        return case.file.fault(
            reader,
            next((kind for word, kind in kinds.items() if word in held), "softmax"),
            f"It reads the {before}; {made!r}, made for it at line {lost.line}, is "
            "read by nothing.",
            f"made from the {before}",
            seen_at=case.seen,
        )
    return thrown_away(case, lost, f"the result ({held})", reader or case.wrong)


def thrown_away(case: Case, lost: Node, result: str, reader: Node | None) -> Diagnosis:
    """The fault of an operation whose result nothing takes.

    reader: the operation that goes on with what it was given.
    """
    seen = reader.line if reader is not None else case.seen
    after = f"line {seen}" if seen is not None else "forward"
    return case.file.fault(
        lost,
        "result thrown away",
        f"{lost.entry.function} returns a new tensor and leaves the old one as it was; "
        f"nothing takes {result}, so {after} goes on with the old one.",
        "a tensor that nothing reads",
        seen_at=seen,
    )


def unread(case: Case) -> Node | None:
    """The last operation on what the wrong one reads, or what that was made from, whose
    result nothing takes."""
    near = behind(case.read)
    stop = case.wrong.index if case.wrong is not None else len(case.run.nodes)
    for node in reversed(case.run.nodes[:stop]):
        one_of_many = node.entry.index is not None
        if node.used or not node.uses_x or node.entry.in_place or one_of_many:
            continue
        if near.isdisjoint(node.inputs):
            continue
        label, before = case.labels.get(node), case.labels.get(node.inputs[0])
        if label is None or before is None:
            continue
        if (label.stage.name, label.axes) != (before.stage.name, before.axes):
            return node
    return None


def another_result_returned(case: Case) -> Diagnosis | None:
    """The output is not what forward returns."""
    said, output = case.judged.returned, case.run.output
    if case.wrong is not None or not said:
        return None
    node = case.run.node_of(output) if output is not None else None
    if node in case.labels and case.labels[node].stage.name == "weights, unmasked":
        return unmasked(case, node)
    for lost in reversed(case.run.nodes):
        label = case.labels.get(lost)
        if label is None or lost.used or not CONTEXTS <= label.stage.rank < AFTER:
            continue
        return case.file.fault(
            lost,
            "result thrown away",
            f"Its result, {label.stage.name}, is used by nothing: forward returns "
            f"{said}.",
            said,
        )
    kind = "merge" if "joined" in said and "not projected" not in said else "output"
    message = f"forward returns {said}."
    place = return_place(case, node)
    return case.file.fault(place, kind, message, said, node=node)


def output_changed(case: Case) -> Diagnosis | None:
    """What makes other numbers of an output that is right."""
    node = case.judged.changed_after
    if node is None:
        return None
    return case.file.fault(
        node,
        "output",
        "The output of attention is right before it, and other numbers after it.",
        f"{node.entry.function} of the output",
    )


def return_place(case: Case, node: Node | None) -> Place | None:
    """The return statement of the module's own forward, else the last operation."""
    found = case.file.inside(
        case.module, "forward", lambda part: isinstance(part, ast.Return)
    )
    return found[-1] if found else node.entry.place if node is not None else None


def keys_by_queries(case: Case) -> Diagnosis | None:
    """Scores whose rows are the keys, where turning them mends the module."""

    def swapped(node: Node) -> bool:
        return node in case.labels and case.labels[node].swapped

    for node in filter(swapped, case.read):
        start = earliest(node, swapped)
        if case.labels[node].stage.rank > 5 or not mended_by_turning(case, start):
            continue
        crossed = crossed_layers(case)
        if crossed is not None:
            at, role, layer = crossed
            return case.file.fault(
                at,
                "projection",
                f"The {role} are made by {layer!r}, so what is used as queries and as "
                "keys is swapped.",
                f"{role} from {layer!r}",
                seen_at=case.seen,
            )
        return case.file.fault(
            start,
            "scores",
            "Every number is a right score, but the keys are on the rows and the "
            f"queries on the columns, and line {case.seen} goes on as if the rows were "
            "queries.",
            f"axes ({', '.join(case.labels[start].axes)}), S the keys' tokens",
            seen_at=case.seen,
        )
    return None


def mended_by_turning(case: Case, node: Node) -> bool:
    """Whether the output is right once these scores are turned."""
    axes = case.labels[node].axes
    if "T" not in axes or "S" not in axes or not node.number:
        return True
    turned = node.value.transpose(axes.index("T"), axes.index("S")).contiguous()
    return is_clean_with(case, node.number, turned)


def crossed_layers(case: Case) -> tuple[Node, str, str] | None:
    """A variable named for one role that is made by the layer named for another."""
    for p in case.found:
        role, layer = role_in(p.node.entry.name or ""), role_in(p.layer)
        if role and layer and role != layer:
            return p.node, WORDS[role], p.layer
    return None


def weights_unfinished(case: Case) -> Diagnosis | None:
    """The softmax of unmasked scores, or the mask after it, taken for the weights."""
    if case.wrong is None:
        return None
    names = {node: label.stage.name for node, label in case.labels.items()}
    parts = {node: label.stage.part for node, label in case.labels.items()}
    for node in case.read:
        name, part = names.get(node, ""), parts.get(node)
        if part == "sum" and not name.startswith("weights"):
            near = behind([node], lambda n: parts.get(n, "sum") == "sum")
            rows = [n for n in near if n in parts]
            return unmasked(case, min(rows, key=lambda n: n.index))
        if name.startswith("weights,") and part and reads_on(case, case.wrong):
            alike = {n for n in names if names[n] == name}
            return unmasked(case, earliest(node, alike.__contains__))
    return None


def reads_on(case: Case, fault: Node) -> bool:
    """Whether contexts are made of the weights that are not masked, or not summed."""
    reference, value = case.judged.reference, fault.value.double()
    weights = reference.unmasked if reference.causal else reference.weights
    return any(
        reference.holds(value, Stage("contexts", made @ reference.v, BHTD, 7))
        for made in (weights, weights.masked_fill(reference.future, 0))
    )


def unmasked(case: Case, node: Node) -> Diagnosis:
    """The fault of weights that a mask, or the sum after it, has not made right."""
    idle = idle_mask(case, node)
    if idle is not None:
        message = "The mask changes nothing here: no score is blocked."
        got = "the scores as they were"
        return case.file.fault(idle, "mask", message, got, seen_at=case.seen)
    message = (
        "It reads the unmasked scores: every token gets weight from tokens after it."
    )
    got = "a softmax over all tokens, the future included"
    if case.labels[node].stage.part == "sum":
        message = (
            "The weights are masked after the softmax and never made to sum to 1 again."
        )
        sums = node.value.sum(-1)
        low, high = float(sums.min()), float(sums.max())
        got = f"rows whose sums run from {low:.2g} to {high:.2g}"
    return case.file.fault(node, "mask", message, got, seen_at=case.seen)


def idle_mask(case: Case, node: Node) -> Node | None:
    """The last masking of the scores, before an operation, that leaves all as they
    were."""

    def scores(node: Node) -> bool:
        return node in case.labels and case.labels[node].stage.name.startswith("scores")

    def changes_nothing(node: Node) -> bool:
        before = next((n.value for n in node.inputs if n in case.labels), None)
        tables = any(t.dim() >= 2 for t, _ in node.constants)
        if before is None or not tables or node.entry.origin == "rearranged":
            return False
        return before.shape == node.value.shape and torch.equal(before, node.value)

    idle = filter(changes_nothing, behind(node.inputs, scores))
    return max(idle, key=lambda n: n.index, default=None)


# ---------------------------------------------------------------- a wrong result


def made_wrong(case: Case) -> Diagnosis | None:
    """The first wrong operation, explained from its numbers, or what lies behind it."""
    fault = case.wrong
    if fault is None:
        return None
    kind, message, got = symptom(case.judged, fault)
    if message.startswith((UNSCALED, FOURTH_ROOT)):
        at = unscaled_scores(case)
        if at is not None:
            return case.file.fault(at, kind, message, got, seen_at=fault.line)
    if kind == "merge":
        again = same_head(case, fault)
        if again is not None:
            return again
    turned = features_first(case, fault) if kind in ("scores", "values") else None
    if turned is not None:
        axes = ", ".join(case.labels[turned].axes)
        return case.file.fault(
            turned,
            "split",
            f"It puts the features before the heads, ({axes}); the product at line "
            f"{fault.line} then takes other axes than tokens and features.",
            f"axes ({axes})",
            seen_at=fault.line,
            node=fault,
        )
    finding = case.file.fault(fault, kind, message, got)
    return wrong_mask(case, fault, finding) or wrong_setting(case, finding) or finding


def same_head(case: Case, fault: Node) -> Diagnosis | None:
    """Contexts joined that are all of one head: the same slice for each."""
    labels = [case.labels.get(node) for node in fault.inputs]
    index = {label.index if label is not None else "" for label in labels}
    if (
        len(labels) < 2
        or len(index) > 1
        or not (head := index.pop()).startswith("head")
    ):
        return None
    slices = [
        node
        for node, label in case.labels.items()
        if label.stage.rank == 2 and label.index == head and node.inputs
    ]
    if len(slices) < 2:
        return None
    return case.file.fault(
        slices[0],
        "split",
        f"Every head is given the slice of {head}: {len(labels)} contexts are joined, "
        "and they are the same one.",
        f"{head}, {len(labels)} times",
        seen_at=fault.line,
        node=fault,
    )


def features_first(case: Case, fault: Node) -> Node | None:
    """Where queries or values get the features before the heads."""

    def turned(node: Node) -> bool:
        label = case.labels.get(node)
        if label is None or not label.stage.name.startswith(("queries", "values")):
            return False
        order = label.order
        return {"D", "H"} <= set(order) and order.index("D") < order.index("H")

    starts = [earliest(node, turned) for node in fault.inputs if turned(node)]
    return min(starts, key=lambda node: node.index, default=None)


def unscaled_scores(case: Case) -> Node | None:
    """Where scores that were never scaled come from: a scaling that changes nothing,
    else the product."""
    labels = case.labels
    scales = [n for n in case.read if n in labels and labels[n].stage.part == "scale"]
    if not scales:
        return None
    node = scales[0]
    half = "half" in labels[node].stage.name

    def scores(node: Node) -> bool:
        return node in labels and labels[node].stage.name.startswith("scores")

    while before := next(filter(scores, node.inputs), None):
        one, two = before.entry, node.entry
        same = labels[before].stage.name == labels[node].stage.name
        moved = two.origin == "rearranged" or two.tensor is one.tensor
        if same and not moved and torch.equal(before.value, node.value):
            return node
        node = before
    return node if half or node.entry.function == "baddbmm" else None


def wrong_mask(case: Case, node: Node, finding: Diagnosis) -> Diagnosis | None:
    """The line that makes a mask which is itself wrong."""
    for tensor, maker in node.constants if finding.kind in ("mask", "softmax") else ():
        chain, source = makers(tensor, maker)
        place: Place | None = None
        if source is not None and is_wrong_mask(source):
            path = case.path_of(source)
            place = case.made_at(path, local=True) if path else None
        for made in sorted(chain, key=lambda n: n.index) if place is None else ():
            if is_wrong_mask(made.value) and made.value.unique().numel() <= 3:
                place = made.entry.place
                break
        if place is not None:
            return case.file.fault(
                place,
                "mask",
                finding.message,
                finding.got,
                seen_at=node.line,
                node=node,
            )
    return None


def makers(
    tensor: torch.Tensor, maker: Node | None
) -> tuple[list[Node], torch.Tensor | None]:
    """The operations that make a constant, and the tensor that they start from."""
    if maker is None:
        return [], tensor
    chain, source = [maker], None
    for node in chain:
        for inner, inner_maker in node.constants:
            if inner_maker is not None:
                chain.append(inner_maker)
            else:
                source = inner
    return chain, source


def is_wrong_mask(tensor: torch.Tensor) -> bool:
    """Whether a square table is no right causal mask, in any polarity."""
    size = tensor.shape[-1] if tensor.dim() >= 2 else 0
    if tensor.is_meta or size < 2 or tensor.numel() != size * size:
        return False
    if tensor.shape[-2] != size:
        return False
    grid = tensor.reshape(size, size)
    if grid.is_floating_point() and bool(grid.isnan().any()):
        return True
    future = torch.ones(size, size, dtype=torch.bool).triu(1)
    if bool((grid == grid[0, 0]).all()):
        return False
    return any(bool((part != part[0]).any()) for part in (grid[future], grid[~future]))


def wrong_setting(case: Case, finding: Diagnosis) -> Diagnosis | None:
    """A number that the constructor keeps and that, put right, mends the module."""
    for owner, name, right in settings(case, finding.statement):
        value = getattr(owner, name)
        setattr(owner, name, right)
        try:
            mended = is_clean(case)
        finally:
            setattr(owner, name, value)
        holder, held = holder_of(case, owner, name)
        place = case.file.constructor(holder, held) if mended else None
        if place is not None:
            place = given(case.file, type(holder).__name__, place) or place
            said = f"{right:.4g}" if isinstance(right, float) else str(right)
            return case.file.fault(
                place,
                finding.kind,
                f"The constructor sets {name} = {value:.4g}; with {said} the module is "
                f"right. {finding.message}",
                finding.got,
                seen_at=finding.line,
                node=finding.node,
            )
    return None


def settings(case: Case, statement: str) -> Iterator[tuple[nn.Module, str, Any]]:
    """(owner, name, another value) for the numbers that a statement may go wrong by."""
    D, H, sizes = case.judged.heads.D, case.judged.heads.H, case.sizes
    plain = {D, H, D * H, sizes.d_in, sizes.context, sizes.p, D**0.5, D**-0.5}
    for owner in case.module.modules():
        for name, value in list(vars(owner).items()):
            number = type(value) in (int, float)
            if not number or name.startswith("_") or meaning(name) == "span":
                continue
            right = {"H": H, "D": D}.get(meaning(name) or "")
            tries: list[Any] = []
            if type(owner).__module__.startswith("torch.nn"):
                if isinstance(owner, nn.Softmax) and name == "dim" and value != -1:
                    tries = [-1]
            elif right is not None and value != right:
                tries = [right]
            elif value not in plain and re.search(rf"\.{re.escape(name)}\b", statement):
                tries = [D**-0.5, D**0.5, D, H, 1.0]
            yield from ((owner, name, one) for one in tries)


def holder_of(case: Case, owner: nn.Module, name: str) -> tuple[nn.Module, str]:
    """Who made a setting: for a layer of torch.nn, the module that holds the layer."""
    if type(owner).__module__.startswith("torch.nn"):
        for module in case.module.modules():
            for child, value in module.named_children():
                if value is owner:
                    return module, child
    return owner, name


# ---------------------------------------------------------------- raised


def raised(case: Case) -> Diagnosis | None:
    """The operation that raised is the first wrong one: name the cause."""
    run = case.run
    if case.wrong is not None or run.error is None:
        return None
    error = first_line(run.error)
    if run.failed is None:
        finding = case.file.fault(run.place, "raises", f"It raises {error}.", got=error)
        return mended(case, finding)
    _, func, args, kwargs = run.failed
    function = getattr(func, "__name__", "")
    tensors = list(tensors_in((args, kwargs)))
    paths = [case.path_of(tensor) for tensor in tensors]
    layer = next((path for path in paths if path in case.weights), None)
    words = ", ".join(in_words(case, tensor) for tensor in tensors) or "no tensor"
    kind = kind_of_call(case, function, tensors, layer)
    message = f"{function} is given {words} and raises {error}."
    if "view" in function and "stride" in str(run.error):
        message += (
            " view needs the numbers in order; after transpose they are not: "
            "contiguous() first, or reshape."
        )
    if "overflow" in str(run.error):
        kind = "mask"
    if TWO_TYPES.search(str(run.error)):
        kind = "precision"
        message = (
            "Two number types meet here, as they do in every precision but float32: "
            f"in float64 {function} raises {error}."
        )
    if function in ADDS and any(tensor is run.x for tensor in tensors):
        message += (
            " x is d_in wide and the output d_out: they add up where these agree."
        )
    finding = case.file.fault(run.place, kind, message, error)
    if layer is not None and function == "linear":
        return layer_refuses(case, layer, list(tensors_in(args)), error) or finding
    return mended(case, finding)


def mended(case: Case, finding: Diagnosis) -> Diagnosis:
    """The setting that mends what was found, where one does."""
    cause = wrong_setting(case, finding) if case.judgement is not None else None
    return cause or finding


def in_words(case: Case, tensor: torch.Tensor) -> str:
    """What a tensor holds, or where it is kept, and its shape."""
    name, label = case.path_of(tensor) or "a tensor", label_of(case, tensor)
    if label is not None:
        axes = f" ({', '.join(label.axes)})" if label.axes else ""
        name = label.stage.name + axes
    return f"{name} of shape {tuple(tensor.shape)}"


def label_of(case: Case, tensor: torch.Tensor) -> Label | None:
    node = case.run.node_of(tensor)
    return case.labels.get(node) if node is not None else None


TWO_TYPES = re.compile(r"same dtype|scalar type")
SAME_TYPE = (
    "masks and weights in the scores' own dtype, such as weights.to(values.dtype)"
)
MOVES = ("view", "reshape", "unflatten", "transpose", "permute", "cat", "stack")
ADDS = ("where", "add", "__add__")


def kind_of_call(
    case: Case, function: str, tensors: list[torch.Tensor], layer: str | None
) -> str:
    """The part of attention that a call was to make."""
    labels = [label for t in tensors if (label := label_of(case, t)) is not None]
    if function in MOVES:
        joins = any(label.stage.rank >= CONTEXTS for label in labels)
        return "merge" if joins else "split"
    if any(label.stage.rank >= CONTEXTS for label in labels) and layer is None:
        return "output"
    if "masked_fill" in function or function in ADDS:
        return "mask"
    if not labels:
        return "projection"
    weights = [case.weights[layer]] if layer is not None else []
    return kind_of(labels, function, weights, [])


def layer_refuses(
    case: Case, path: str, tensors: list[torch.Tensor], error: str
) -> Diagnosis | None:
    """Why a layer was given numbers of another width than it takes."""
    weight = case.weights[path]
    given = next((t for t in tensors if t is not weight), weight)
    takes, width = weight.shape[-1], given.shape[-1]
    path = path.rpartition(".")[0] or path
    name, what = path.rpartition(".")[2], in_words(case, tensors[0])
    heads = case.judgement.heads.H if case.judgement is not None else 0
    place = case.made_at(path, local=True)
    if case.run.node_of(given) in {p.node for p in case.found}:
        return case.file.fault(
            case.run.place,
            "projection",
            f"{name!r} is applied to {what}, which a layer has projected already, not "
            f"to x: {error}.",
            error,
        )
    if width == takes * heads:
        return case.file.fault(
            case.run.place,
            "constructor",
            f"Every head is as wide as the whole: joined, they have {width} features, "
            f"and {name!r} takes {takes}. The constructor did not divide the width by "
            "the heads.",
            error,
        )
    if place is None or width == takes:
        return None
    label = label_of(case, given)
    if label is not None and label.stage.name == "contexts" and takes == width * heads:
        return case.file.fault(
            case.run.place,
            "merge",
            f"The layer {name!r} is given {what}, head by head; it takes the {takes} "
            "features of all heads side by side.",
            error,
        )
    return case.file.fault(
        place,
        "constructor",
        f"The layer {name!r} takes {takes} features and is given {what}: {width} "
        "features.",
        error,
        seen_at=case.seen,
    )


# ---------------------------------------------------------------- one layer for two


def two_roles(case: Case) -> Diagnosis | None:
    """One layer that does the work of two, or of two heads."""
    explanations = (
        unprojected,
        one_layer_twice,
        one_head_twice,
        split_first,
        projected_twice,
        names_crossed,
    )
    return first(explanations, case)


def unprojected(case: Case) -> Diagnosis | None:
    """A role that x itself plays, with no layer before it."""
    roles = case.judged.heads.roles.items()
    bare = [WORDS[role] for role, ps in roles if not ps]
    if len(bare) != 1:
        return None
    before = behind(p.node for p in case.found)  # what the layers are given
    for node in case.run.nodes:
        if node in case.plain and node not in before:
            return case.file.fault(
                alias(case.file, node.entry.place) or node,
                "projection",
                f"The {bare[0]} are x itself: no layer makes them.",
                f"{bare[0]} equal to x",
                seen_at=node.line,
                node=node,
            )
    return None


def one_layer_twice(case: Case) -> Diagnosis | None:
    heads = case.judged.heads
    firsts = {r: ps[0] for r, ps in heads.roles.items() if ps and not heads.layout}
    for (earlier, before), (role, p) in itertools.combinations(firsts.items(), 2):
        if p.same_as(before):
            one, other, at = WORDS[earlier], WORDS[role], misnamed(case, p)
            return case.file.fault(
                made_twice(case, p) or call_site(case, at, before.node) or at,
                "projection",
                f"One layer, {p.layer!r}, makes the {one} and the {other}: they are "
                "the same numbers.",
                f"{other} equal to the {one}",
                seen_at=at.line,
                node=at,
            )
    return None


def call_site(case: Case, node: Node, other: Node) -> Place | None:
    """Where the calls of one line part: each of two operations comes from a call."""
    pairs = zip(node.calls, other.calls, strict=False)
    parted = next((one for one, two in pairs if one != two), None)
    if parted is None or node.line != other.line:
        return None
    return Place(case.file.path, parted, parted, None, None)


def made_twice(case: Case, p: Projection) -> Place | None:
    """Where the constructor gives a second attribute the layer that another one has."""
    try:
        layer, _ = owner_of(case.module, p.paths[0])
    except (AttributeError, LookupError):
        return None
    places = [
        place
        for owner in case.module.modules()
        for name, value in owner._modules.items()
        if value is layer and (place := case.file.constructor(owner, name)) is not None
    ]
    places.sort(key=lambda place: place.line)
    return places[1] if len(places) > 1 and layer is not case.module else None


def misnamed(case: Case, p: Projection) -> Node:
    """Of a layer's uses the one named for another role, else the second."""
    uses = [other.node for other in case.found if other.same_as(p)]
    role = role_in(p.layer)
    for node in uses if role else ():
        if role_in(node.entry.name or "") not in (None, role):
            return node
    return uses[1] if len(uses) > 1 else p.node


def one_head_twice(case: Case) -> Diagnosis | None:
    for role, ps in case.judged.heads.roles.items():
        pairs = itertools.combinations(enumerate(ps, 1), 2)
        for (earlier, before), (number, p) in pairs:
            if not p.same_as(before):
                continue
            place = p.node.entry.place
            weight = case.weights[p.paths[0]]
            sliced = weight.numel() >= 2 * p.width * case.x.shape[-1]
            if not sliced and not sibling_unused(case, p.paths[0]):
                place = maker_of(case, p)
            elif re.search(r"\.\d+\.", p.layer):
                place = joined_at(case) or place
            return case.file.fault(
                place,
                "projection",
                f"Heads {earlier} and {number} use the same weights "
                f"({p.layer}), so they are one head computed twice.",
                f"one layer for the {WORDS[role]} of several heads",
                seen_at=p.node.line,
                node=p.node,
            )
    return None


def joined_at(case: Case) -> Place | None:
    """Where the outputs of heads that are modules of their own are put together."""
    for node in case.run.nodes:
        labels = [case.labels.get(n) for n in node.inputs]
        heads = [la for la in labels if la is not None and la.index.startswith("head")]
        if len(labels) == len(heads) > 1 and node.entry.origin == "copied":
            return node.entry.place
    return None


def sibling_unused(case: Case, path: str) -> bool:
    """Whether the list that a weight is in has others, which no projection used."""
    pattern = re.sub(r"\\\.\d+", r"\\.\\d+", re.escape(path))
    used = {path for p in case.found for path in p.paths}
    return any(re.fullmatch(pattern, other) for other in case.weights.keys() - used)


def split_first(case: Case) -> Diagnosis | None:
    """The input cut into heads, and one small layer for all of them."""
    heads = case.judged.heads
    for role, ps in heads.roles.items():
        weight = case.weights.get(ps[0].paths[0]) if len(ps) == 1 else None
        if weight is None or heads.H < 2 or heads.kv_heads or ps[0].deep:
            continue
        if weight.numel() * heads.H < ps[0].width * case.sizes.d_in:
            return case.file.fault(
                ps[0].node,
                "projection",
                "The input is cut into heads first, and one small layer, "
                f"{ps[0].layer!r} of shape {tuple(weight.shape)}, makes the "
                f"{WORDS[role]} of every head: the heads share their weights.",
                f"{heads.H} heads, one layer",
            )
    return None


def projected_twice(case: Case) -> Diagnosis | None:
    roles = case.judged.heads.roles.items()
    used = [(role, p) for role, ps in roles for p in ps]
    for role, p in used if any(not p.deep for _, p in used) else ():
        if p.deep:
            return case.file.fault(
                p.node,
                "projection",
                f"The {WORDS[role]} are made from numbers that a layer has projected "
                "already, not from x.",
                f"{WORDS[role]} = {p.layer}(another projection)",
            )
    return None


def names_crossed(case: Case) -> Diagnosis | None:
    crossed = crossed_layers(case) if case.judged.heads.conflicts else None
    if crossed is None:
        return None
    node, role, layer = crossed
    return case.file.fault(
        node,
        "projection",
        f"The {role} are made by {layer!r}.",
        f"{role} from {layer!r}",
    )
