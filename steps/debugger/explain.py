# ruff: noqa: E501 - sentences for the reader are kept whole
"""Say what a fault is, from the numbers: what was read, made and expected."""

import ast
import math
import re
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from steps.debugger.bound import alias, binding, given
from steps.debugger.judge import AFTER, CONTEXTS, Judgement
from steps.debugger.load import first_line
from steps.debugger.result import Diagnosis
from steps.debugger.roles import WORDS, role_in
from steps.debugger.run import Node, record
from steps.debugger.stages import CLOSE, Label, Reference, Stage, match
from steps.pytorch import nn, torch
from steps.walk.recorder import tensors_in
from steps.walk.source import Place, Source, Statement

if TYPE_CHECKING:
    from steps.debugger.examine import Case

UNSCALED = (
    "The scores are not divided",
    "The scores are scaled once by the fourth root",
)
RIGHT = {
    "split": "tensor.view(b, num_tokens, num_heads, head_dim).transpose(1, 2)",
    "scores": "queries @ keys.transpose(-2, -1), with (b, num_heads, num_tokens, head_dim) each",
    "scale": "scores / head_dim**0.5",
    "mask": "scores.masked_fill(mask[:num_tokens, :num_tokens], -torch.inf) before the softmax, "
    "where mask is triu(ones, diagonal=1) as booleans",
    "softmax": "torch.softmax(scores, dim=-1): the weights of one query sum to 1",
    "values": "weights @ values, with (b, num_heads, num_tokens, head_dim) values",
    "merge": "contexts.transpose(1, 2).contiguous().view(b, num_tokens, num_heads * head_dim)",
    "output": "out_proj(joined), where joined is (b, num_tokens, num_heads * head_dim)",
    "projection": "queries, keys and values each from x, each through a layer of its own",
}


@dataclass
class Finding:
    """A fault with its place."""

    line: int | None
    column: int | None
    statement: str
    kind: str
    message: str
    expected: str = ""
    got: str = ""
    seen_at: int | None = None
    node: Node | None = None


class File:
    """The reader's source, for lines and statements; empty where there is none."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.source: Source | None = None
        self.tree: ast.Module | None = None
        try:
            self.source = Source.of(file)
            self.tree = self.source.tree
        except (OSError, SyntaxError, ValueError):
            pass

    def at(self, place: Place | None) -> tuple[int | None, int | None, str]:
        if place is None:
            return None, None, ""
        column = None if place.column is None else place.column + 1
        text = ""
        if self.source is not None:
            statement: Statement | None = self.source.statement(place)
            text = statement.text if statement else ""
        return place.line, column, text

    def constructor(
        self, owner: Any, attribute: str, local: bool = True
    ) -> Place | None:
        """Where the class of `owner` gives itself this attribute, or the local it comes from."""
        if self.tree is None:
            return None
        names = [base.__name__ for base in type(owner).__mro__]
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ClassDef) and node.name in names:
                place = self._in_class(node, attribute, local)
                if place is not None:
                    return place
        return None

    def _in_class(
        self, cls: ast.ClassDef, attribute: str, through: bool
    ) -> Place | None:
        for function in cls.body:
            if not isinstance(function, ast.FunctionDef) or function.name == "forward":
                continue
            for part in ast.walk(function):
                node: Any = part
                value = assigned(node, attribute)
                if value is None:
                    continue
                at: Any = node
                while isinstance(value, ast.Call | ast.Attribute) and not isinstance(
                    value, ast.Name
                ):  # mask.bool() is of mask
                    inner = value.func if isinstance(value, ast.Call) else value.value
                    if isinstance(value, ast.Attribute) and not isinstance(
                        inner, ast.Call | ast.Name | ast.Attribute
                    ):
                        break
                    value = inner
                if through and isinstance(value, ast.Name) and value.id != "self":
                    local = self._local(function, value.id, node.lineno)
                    at = local or node
                return Place(
                    self.file,
                    at.lineno,
                    at.end_lineno,
                    at.col_offset,
                    at.end_col_offset,
                )
        return None

    def definition(self, owner: Any, name: str) -> Place | None:
        """Where the class of `owner` defines a method."""
        for cls in ast.walk(self.tree) if self.tree is not None else ():
            if isinstance(cls, ast.ClassDef) and cls.name == type(owner).__name__:
                for node in cls.body:
                    if isinstance(node, ast.FunctionDef) and node.name == name:
                        return Place(
                            self.file,
                            node.lineno,
                            node.lineno,
                            node.col_offset,
                            None,
                        )
        return None

    def floor_division(self, owner: Any) -> Place | None:
        """The constructor's first statement with a //."""
        for cls in ast.walk(self.tree) if self.tree is not None else ():
            if isinstance(cls, ast.ClassDef) and cls.name == type(owner).__name__:
                for function in cls.body:
                    if (
                        not isinstance(function, ast.FunctionDef)
                        or function.name != "__init__"
                    ):
                        continue
                    for node in ast.walk(function):
                        if isinstance(node, ast.BinOp) and isinstance(
                            node.op, ast.FloorDiv
                        ):
                            return Place(
                                self.file,
                                node.lineno,
                                node.end_lineno or node.lineno,
                                node.col_offset,
                                node.end_col_offset,
                            )
        return None

    @staticmethod
    def _local(function: ast.FunctionDef, name: str, before: int) -> ast.AST | None:
        found = None
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and node.lineno <= before:
                for target in node.targets:
                    if isinstance(target, ast.Name) and target.id == name:
                        found = (
                            node
                            if found is None or node.lineno >= found.lineno
                            else found
                        )
        return found


def assigned(node: ast.AST, attribute: str) -> ast.expr | None:
    """The value that a statement stores as self.<attribute>."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple):
                values = (
                    node.value.elts
                    if isinstance(node.value, ast.Tuple)
                    else [node.value] * len(target.elts)
                )
                pairs = list(zip(target.elts, values, strict=False))
            for part, value in pairs:
                if isinstance(part, ast.Attribute) and part.attr == attribute:
                    return value
    if (
        isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Attribute)
        and node.target.attr == attribute
    ):
        return node.value
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and len(node.args) >= 2
    ):
        first = node.args[0]
        if (
            node.func.attr in ("register_buffer", "register_parameter")
            and isinstance(first, ast.Constant)
            and first.value == attribute
        ):
            return node.args[1]
    return None


def diagnosis(case: "Case") -> Diagnosis:
    """The verdict from the run alone; the other probes come after it."""
    from steps.debugger import probes
    from steps.debugger.examine import described

    run, judgement = case.run, case.judgement
    assert run is not None
    file = File(case.file)
    result = Diagnosis(case.file, "no fault", examined=described(case))
    drawn = probes.random_in_eval(case, file) if run.error is None else None
    if drawn is not None:
        result.trace = rows(case, judgement, drawn)
        apply(result, drawn)
        return result
    if run.error is not None and "flex_attention" in "".join(
        traceback.format_tb(run.error.__traceback__)
    ):
        result.verdict, result.trace = "cannot tell", rows(case, judgement, None)
        result.message = f"flex_attention refuses these sizes: {first_line(run.error)}"
        return result
    if judgement is None:
        return probes.without_heads(case, file, result)
    finding = None if judgement.clean else blame(case, file)
    if finding is None:
        finding = two_roles(case, file)
    result.trace = rows(case, judgement, finding)
    other = another_kind(judgement) if finding is not None else ""
    if other:
        result.verdict = "cannot tell"
        result.message = other
        return result
    if finding is None:
        result.message = clean_message(case)
        if judgement.heads.changed == "changed":
            result.verdict = "cannot tell"
            result.message = (
                "Each token's queries or keys are changed by themselves before the scores (a norm, "
                "or an activation), which the article does not do and which cannot be judged here. "
                "Everything from the scores on is right."
            )
        return result
    apply(result, finding)
    return result


def another_kind(judgement: Judgement) -> str:
    """Why a module is another kind of attention, not a wrong one of this kind."""
    if judgement.heads.changed == "changed" and judgement.progress < 300:
        return (
            "Queries or keys are changed by themselves and no scores are made of them: this "
            "is another kind of attention, which cannot be judged here."
        )
    fault = judgement.fault
    if fault is None:
        return ""
    names = [
        judgement.labels[n].stage.name for n in fault.inputs if n in judgement.labels
    ]
    if not names or not all(name.startswith("scores") for name in names):
        return ""
    learnt = any(t.dim() >= 2 for t in fault.params.values())
    graded = any(
        t.dim() >= 2
        and t.is_floating_point()
        and t[torch.isfinite(t)].unique().numel() > 3
        for t, _ in fault.constants
    )
    if learnt or graded:
        what = "learnt numbers" if learnt else "numbers that grow with the distance"
        return (
            f"At line {fault.line} {what} are added to the scores (positions, perhaps), which "
            "the article does not do and which cannot be judged here. Up to there all is right."
        )
    return ""


def apply(result: Diagnosis, finding: Finding) -> None:
    result.verdict = "fault"
    for name in (
        "line",
        "column",
        "statement",
        "kind",
        "message",
        "expected",
        "got",
        "seen_at",
    ):
        setattr(result, name, getattr(finding, name))
    if finding.seen_at and finding.seen_at != finding.line:
        result.message += f" It shows at line {finding.seen_at}."


def mark(result: Diagnosis) -> None:
    """Mark the row of the trace that stands at the fault's line, where none is marked."""
    if any(row["first_wrong"] for row in result.trace):
        return
    for row in result.trace:
        if row["line"] in (result.line, result.seen_at):
            row["first_wrong"], row["ok"] = True, False
            return


def rows(
    case: "Case", judgement: Judgement | None, finding: Finding | None
) -> list[dict[str, Any]]:
    """The trace: see steps.debugger.result."""
    made = []
    assert case.run is not None
    wrong: set[Node] = set()
    for node in case.run.nodes:
        entry, place = node.entry, node.entry.place
        label = judgement.labels.get(node) if judgement else None
        ok: bool | None = None
        if judgement is not None and node.uses_x:
            ok = node in judgement.good
        if finding is not None and (
            finding.node is node or any(n in wrong for n in node.inputs)
        ):
            wrong.add(node)
            ok = False
        elif ok is False and finding is None:
            ok = None
        stage, axes = None, []
        if label is not None:
            stage, axes = (
                label.stage.name + (f", {label.index}" if label.index else ""),
                label.axes,
            )
        elif ok and judgement is not None:
            stage = ""
        if not node.uses_x:
            stage = ""
        made.append(
            {
                "line": place.line,
                "column": None if place.column is None else place.column + 1,
                "end_line": place.end_line,
                "end_column": None
                if place.end_column is None
                else place.end_column + 1,
                "statement": entry.statement,
                "expression": entry.expression,
                "name": entry.name,
                "function": entry.function,
                "shape": list(entry.shape),
                "stage": stage,
                "axes": list(axes),
                "origin": entry.origin,
                "ok": ok,
                "first_wrong": finding is not None and finding.node is node,
                "follows": node in wrong
                and finding is not None
                and finding.node is not node,
                "values": node.value,
            }
        )
    return made


# ---------------------------------------------------------------- where


def blame(case: "Case", file: File) -> Finding | None:
    """From the first operation without a stage to the one that is to blame."""
    judgement, run = case.judgement, case.run
    assert judgement is not None
    assert run is not None
    fault, labels = judgement.fault, judgement.labels
    inputs = list(fault.inputs) if fault is not None else failing_inputs(case)
    seen = fault.line if fault is not None else (run.place.line if run.place else None)

    if fault is not None:
        again = reused_layer(case, file, fault)
        if again is not None:
            return again
        named = binding(case, file.tree, fault)
        if named is not None and named.line != fault.line:
            finding = described_fault(case, file, fault)
            finding.line, finding.column, finding.statement = file.at(named)
            return finding
    thrown = thrown_away(case, inputs, fault)
    if thrown is not None and thrown.entry.name:
        reader = next(
            (n for n in run.nodes[thrown.index + 1 :] if thrown.inputs[0] in n.inputs),
            None,
        )
        if reader is not None and (
            fault is None or reader.index <= fault.index or fault in run.nodes
        ):
            line, column, statement = file.at(reader.entry.place)
            made, read = thrown.entry.name, labels[thrown.inputs[0]].stage.name
            kind = (
                "mask"
                if "masked" in labels[thrown].stage.name
                else "scale"
                if "scaled" in labels[thrown].stage.name
                else "softmax"
            )
            return Finding(
                line,
                column,
                statement,
                kind,
                f"It reads the {read}; {made!r}, made for it at line {thrown.line}, is read by nothing.",
                f"read {made}",
                f"made from the {read}",
                seen_at=seen,
                node=reader,
            )
    if thrown is not None:
        line, column, statement = file.at(thrown.entry.place)
        what = labels[thrown].stage.name if thrown in labels else "its result"
        name = thrown.entry.function
        better = f"assign it: name = {thrown.entry.expression}"
        if name == "masked_fill":
            better += ", or masked_fill_ to change the tensor in place"
        return Finding(
            line,
            column,
            statement,
            "result thrown away",
            f"{name} returns a new tensor and leaves the old one as it was; nothing takes the "
            f"result ({what}), so line {seen} goes on with the old one.",
            better,
            "a tensor that nothing reads",
            seen_at=seen,
            node=thrown,
        )
    if fault is None and judgement.returned:
        return returned(case, file)
    swapped = swapped_scores(case, inputs, fault)
    if swapped is not None:
        return swapped_finding(case, file, swapped, seen)
    tentative = unfinished(case, inputs, fault)
    if tentative is not None:
        return tentative_finding(case, file, tentative, seen)
    if fault is None:
        return raised(case, file)
    finding = described_fault(case, file, fault)
    if finding.kind == "scale" and finding.message.startswith(UNSCALED):
        at = unscaled_scores(case, inputs)
        if at is not None:
            finding.line, finding.column, finding.statement = file.at(at.entry.place)
            finding.node, finding.seen_at = at, fault.line
            return finding
    cause = deeper(case, file, fault, finding)
    return cause or finding


def failing_inputs(case: "Case") -> list[Node]:
    """The recorded operations whose results the call that raised was given."""
    run = case.run
    assert run is not None
    if run.failed is None:
        return []
    _, _, args, kwargs = run.failed
    return [
        n
        for t in tensors_in((args, kwargs))
        if (n := run.node_of(t)) is not None and n.uses_x
    ]


def thrown_away(case: "Case", inputs: list[Node], fault: Node | None) -> Node | None:
    """An earlier operation on the same inputs whose result nothing takes."""
    judgement, run = case.judgement, case.run
    assert judgement is not None
    assert run is not None
    stop = fault.index if fault is not None else len(run.nodes)
    near: set[Node] = set()
    todo = list(inputs)
    while todo:
        node = todo.pop()
        if node not in near:
            near.add(node)
            todo += node.inputs
    best = None
    for node in run.nodes[:stop]:
        if node.used or not node.uses_x or node.entry.in_place:
            continue
        if node.entry.index is not None:  # one of several results
            continue
        if not node.inputs or not any(n in near for n in node.inputs):
            continue
        label = judgement.labels.get(node)
        before = judgement.labels.get(node.inputs[0])
        if label is None or before is None:
            continue
        further = (
            label.stage.rank > before.stage.rank
            or label.stage.name != before.stage.name
        )
        if further or label.axes != before.axes:
            best = node
    return best


def swapped_scores(case: "Case", inputs: list[Node], fault: Node | None) -> Node | None:
    """The operation that first put the keys' axis before the queries'."""
    judgement, run = case.judgement, case.run
    assert judgement is not None
    assert run is not None
    for node in inputs:
        label = judgement.labels.get(node)
        if label is None or not label.swapped or label.stage.rank > 5:
            continue
        if not mended_by_turning(case, first_swapped(judgement, node)):
            continue
        while True:
            before = [
                n
                for n in node.inputs
                if n in judgement.labels and judgement.labels[n].swapped
            ]
            if not before:
                return node
            node = before[0]
    return None


def first_unfinished(judgement: Judgement, node: Node) -> Node:
    """The first of the operations before whose rows do not sum to 1 yet."""
    seen, todo, first = set(), [node], node
    while todo:
        at = todo.pop()
        if at in seen:
            continue
        seen.add(at)
        label = judgement.labels.get(at)
        if label is None or label.stage.part != "sum":
            continue
        first = min(first, at, key=lambda n: n.index)
        todo += at.inputs
    return first


def first_swapped(judgement: Judgement, node: Node) -> Node:
    while True:
        before = [
            n
            for n in node.inputs
            if n in judgement.labels and judgement.labels[n].swapped
        ]
        if not before:
            return node
        node = before[0]


def mended_by_turning(case: "Case", node: Node) -> bool:
    """Whether the module is right once these scores are turned: run again with them turned."""
    judgement = case.judgement
    assert judgement is not None
    axes = judgement.labels[node].axes
    if "T" not in axes or "S" not in axes or not node.number:
        return True
    turned = node.value.transpose(axes.index("T"), axes.index("S")).contiguous()
    return is_clean(case, {node.number: turned})


def unfinished(case: "Case", inputs: list[Node], fault: Node | None) -> Node | None:
    """The softmax of unmasked scores (or the mask after it) that a later line took as weights."""
    judgement = case.judgement
    assert judgement is not None
    if fault is None and case.run is not None and case.run.error is not None:
        return None
    reference = judgement.reference
    for node in inputs:
        label = judgement.labels.get(node)
        if (
            label is not None
            and label.stage.part == "sum"
            and not label.stage.name.startswith("weights")
        ):
            return first_unfinished(judgement, node)
        if (
            label is None
            or not label.stage.name.startswith("weights,")
            or not label.stage.part
        ):
            continue
        if fault is not None:
            value = fault.value.double()
            total = float(value.sum())
            made = [reference.unmasked @ reference.v]
            made.append(
                reference.unmasked.masked_fill(reference.future, 0) @ reference.v
            )
            stages = [Stage("contexts", t, ("B", "H", "T", "D"), 7) for t in made]
            if not any(match(value, s, total) for s in stages):
                continue
        start = node
        while True:
            before = [
                n
                for n in start.inputs
                if n in judgement.labels
                and judgement.labels[n].stage.name == judgement.labels[start].stage.name
            ]
            if not before:
                return start
            start = before[0]
    return None


def unscaled_scores(case: "Case", inputs: list[Node]) -> Node | None:
    """Where the scores that were never scaled come from: a scaling that changes nothing,
    else the product."""
    judgement = case.judgement
    assert judgement is not None
    labels = judgement.labels
    node = next(
        (n for n in inputs if n in labels and labels[n].stage.part == "scale"), None
    )
    half = node is not None and "half" in labels[node].stage.name
    while node is not None:
        before = [
            n
            for n in node.inputs
            if n in labels and labels[n].stage.name.startswith("scores")
        ]
        if not before:
            return node if half or node.entry.function == "baddbmm" else None
        if (
            labels[before[0]].stage.name == labels[node].stage.name
            and node.entry.origin != "rearranged"
        ):
            same = before[0].value.shape == node.value.shape and torch.equal(
                before[0].value, node.value
            )
            if same and node.entry.tensor is not before[0].entry.tensor:
                return node
        node = before[0]
    return None


def reused_layer(case: "Case", file: File, fault: Node) -> Finding | None:
    """An output projection that is one of the query, key and value layers again."""
    judgement = case.judgement
    assert judgement is not None
    if not any(
        judgement.labels[n].stage.rank >= CONTEXTS
        for n in fault.inputs
        if n in judgement.labels
    ):
        return None
    for p in case.found:
        if p.node is fault:
            continue
        for path in p.paths:
            if path in fault.params:
                spare = "." not in path or idle_layer(case)
                line, column, statement = file.at(
                    fault.entry.place if spare else shared_place(case, file, p)
                )
                role = next(
                    (WORDS[r] for r, ps in judgement.heads.roles.items() if p in ps),
                    "queries",
                )
                return Finding(
                    line,
                    column,
                    statement,
                    "projection",
                    f"The output is projected by {p.layer!r}, the layer that makes the {role}.",
                    "a layer of its own for the output",
                    f"{p.layer!r} used for two roles",
                    seen_at=fault.line,
                    node=fault,
                )
    return None


# ---------------------------------------------------------------- what


def swapped_finding(case: "Case", file: File, node: Node, seen: int | None) -> Finding:
    judgement = case.judgement
    assert judgement is not None
    line, column, statement = file.at(node.entry.place)
    crossed = crossed_layers(case)
    if crossed is not None:
        at, role, layer = crossed
        line, column, statement = file.at(at.entry.place)
        return Finding(
            line,
            column,
            statement,
            "projection",
            f"The {WORDS[role]} are made by {layer!r}, so what is used as queries and as keys is "
            "swapped.",
            RIGHT["projection"],
            f"{WORDS[role]} from {layer!r}",
            seen_at=seen,
            node=at,
        )
    label = judgement.labels[node]
    return Finding(
        line,
        column,
        statement,
        "scores",
        "Every number is a right score, but the keys are on the rows and the queries on the "
        f"columns, and line {seen} goes on as if the rows were queries.",
        RIGHT["scores"] + ": rows are queries",
        f"axes ({', '.join(label.axes)}), S the keys' tokens",
        seen_at=seen,
        node=node,
    )


def crossed_layers(case: "Case") -> tuple[Node, str, str] | None:
    """A variable named for one role that is made by the layer named for another."""
    for p in case.found:
        role = role_in(p.node.entry.name) if p.node.entry.name else None
        layer = role_in(p.layer)
        if role and layer and role != layer:
            return p.node, role, p.layer
    return None


def tentative_finding(
    case: "Case", file: File, node: Node, seen: int | None
) -> Finding:
    judgement = case.judgement
    assert judgement is not None
    line, column, statement = file.at(node.entry.place)
    idle = idle_mask(judgement, node)
    if idle is not None:
        line, column, statement = file.at(idle.entry.place)
        return Finding(
            line,
            column,
            statement,
            "mask",
            "The mask changes nothing here: no score is blocked.",
            RIGHT["mask"],
            "the scores as they were",
            seen_at=seen,
            node=idle,
        )
    if judgement.labels[node].stage.part == "sum":
        return Finding(
            line,
            column,
            statement,
            "mask",
            "The weights are masked after the softmax and never made to sum to 1 again.",
            RIGHT["mask"] + "; or divide each row by its sum afterwards",
            f"rows that sum to {smallest_sum(node)} and more, up to 1",
            seen_at=seen,
            node=node,
        )
    return Finding(
        line,
        column,
        statement,
        "mask",
        "It reads the unmasked scores: every token gets weight from tokens after it.",
        RIGHT["mask"],
        "a softmax over all tokens, the future included",
        seen_at=seen,
        node=node,
    )


def idle_mask(judgement: Judgement, node: Node) -> Node | None:
    """A masking of the scores, on the way to `node`, that leaves every one as it was."""
    todo = list(node.inputs)
    while todo:
        at = todo.pop()
        label = judgement.labels.get(at)
        if label is None or not label.stage.name.startswith("scores"):
            continue
        before = next((n for n in at.inputs if n in judgement.labels), None)
        tables = [t for t, _ in at.constants if t.dim() >= 2]
        if (
            before is not None
            and tables
            and at.entry.origin != "rearranged"
            and before.value.shape == at.value.shape
            and torch.equal(before.value, at.value)
        ):
            return at
        todo += at.inputs
    return None


def smallest_sum(node: Node) -> str:
    return f"{float(node.value.sum(-1).min()):.2f}"


def returned(case: "Case", file: File) -> Finding | None:
    """The output is not what forward returns."""
    judgement, run = case.judgement, case.run
    assert judgement is not None
    assert run is not None
    node = run.node_of(run.output) if run.output is not None else None
    place = return_place(case, file, node)
    line, column, statement = file.at(place)
    label = judgement.labels.get(node) if node is not None else None
    if (
        node is not None
        and label is not None
        and label.stage.name == "weights, unmasked"
    ):
        return tentative_finding(case, file, node, None)
    lost = last_unused(case)
    if lost is not None:
        line, column, statement = file.at(lost.entry.place)
        return Finding(
            line,
            column,
            statement,
            "result thrown away",
            f"Its result, {judgement.labels[lost].stage.name}, is used by nothing: forward returns "
            f"{judgement.returned}.",
            "return it",
            judgement.returned,
            node=lost,
        )
    kind = (
        "merge"
        if "joined" in judgement.returned and "not projected" not in judgement.returned
        else "output"
    )
    return Finding(
        line,
        column,
        statement,
        kind,
        f"forward returns {judgement.returned}.",
        RIGHT[kind],
        judgement.returned,
        node=node,
    )


def last_unused(case: "Case") -> Node | None:
    judgement, run = case.judgement, case.run
    assert judgement is not None
    assert run is not None
    for node in reversed(run.nodes):
        label = judgement.labels.get(node)
        if label is not None and not node.used and CONTEXTS <= label.stage.rank < AFTER:
            return node
    return None


def return_place(case: "Case", file: File, node: Node | None) -> Place | None:
    """The return statement of the module's own forward, else the last operation."""
    if file.tree is not None:
        names = [base.__name__ for base in type(case.module).__mro__]
        for cls in ast.walk(file.tree):
            if isinstance(cls, ast.ClassDef) and cls.name in names:
                for function in cls.body:
                    if (
                        isinstance(function, ast.FunctionDef)
                        and function.name == "forward"
                    ):
                        found = [
                            n for n in ast.walk(function) if isinstance(n, ast.Return)
                        ]
                        if found:
                            last = found[-1]
                            return Place(
                                case.file,
                                last.lineno,
                                last.end_lineno or last.lineno,
                                last.col_offset,
                                last.end_col_offset,
                            )
    return node.entry.place if node is not None else None


def described_fault(case: "Case", file: File, node: Node) -> Finding:
    """The fault at an operation, explained from its numbers."""
    judgement = case.judgement
    assert judgement is not None
    line, column, statement = file.at(node.entry.place)
    kind, message, got = why(judgement, node)
    expected = RIGHT.get(kind, "")
    return Finding(
        line,
        column,
        statement,
        kind,
        message,
        expected,
        got,
        seen_at=node.line,
        node=node,
    )


def why(judgement: Judgement, node: Node) -> tuple[str, str, str]:
    """(kind, sentence, what was made) for an operation that holds no stage."""
    reference = judgement.reference
    value = node.value
    shape = tuple(value.shape)
    inputs = [judgement.labels[n] for n in node.inputs if n in judgement.labels]
    names = {label.stage.name.split(",")[0] for label in inputs}
    kind = kind_of(names, inputs, node)
    if not value.is_floating_point():
        return (
            kind,
            "Its result is no part of attention.",
            f"{value.dtype} of shape {shape}",
        )
    value = value.double()
    turned = other_axis(judgement, node)
    if turned:
        return "softmax", turned, f"shape {shape}"
    if bool(value.isnan().any()):
        where = (
            "rows" if value.dim() < 2 else f"{int(value.isnan().any(-1).sum())} rows"
        )
        text = "Its result has NaN"
        if kind in ("softmax", "mask"):
            text += ": where every key of a query is blocked, a softmax divides zero by zero"
        return (
            kind if kind != "scores" else "mask",
            text + ".",
            f"NaN in {where}, shape {shape}",
        )
    factor = constant_factor(value, reference)
    if factor is not None:
        name, times = factor
        wanted = reference.D**-0.5
        said = name_factor(times, reference)
        return (
            "scale",
            f"It holds the {name} times {said}; after scaling it would be 1/sqrt(head_dim) = {wanted:.4g} times.",
            f"the {name} times {times:.4g}",
        )
    other = alternatives(value, reference)
    if other is not None:
        kind, text = other
        return kind, text, f"shape {shape}"
    source = same_numbers(value, [n.value for n in node.inputs])
    if source is not None or node.entry.origin in ("rearranged", "copied"):
        held = inputs[0] if inputs else None
        where = (
            f" of the {held.stage.name}, which came in as ({', '.join(held.axes)}),"
            if held and held.axes
            else ""
        )
        if kind not in ("split", "merge"):
            kind = (
                "merge"
                if any(label.stage.rank >= CONTEXTS for label in inputs)
                else kind
            )
        return (
            kind,
            f"The numbers{where} are in the wrong places. A shape of {shape} can be had in "
            "more than one way: view and reshape count the numbers off in the order they "
            "have, and an axis has to be moved, by transpose or permute, before or after.",
            f"numbers of other tokens or heads side by side, shape {shape}",
        )
    if kind == "scores":
        given = ", ".join(
            f"{label.stage.name} ({', '.join(label.axes)})" for label in inputs
        )
        return (
            kind,
            f"It multiplies {given}; that is not every query with every key of its own head.",
            f"shape {shape}",
        )
    if kind == "values":
        given = ", ".join(
            f"{label.stage.name} ({', '.join(label.axes)})" for label in inputs
        )
        return (
            kind,
            f"It combines {given}; that is not the weights' sum over the values' tokens.",
            f"shape {shape}",
        )
    if kind == "mask":
        return kind, mask_words(value, judgement, node), f"shape {shape}"
    sums = sums_to_one(value, shape)
    if sums is not None and sums != len(shape) - 1:
        return (
            "softmax",
            f"The numbers sum to 1 over axis {sums}, of size {shape[sums]}, not over the keys.",
            f"sums of 1 on axis {sums}",
        )
    read = ", ".join(sorted(label.stage.name for label in inputs)) or "its inputs"
    return (
        kind,
        f"It reads {read} and makes numbers that no right route has.",
        f"shape {shape}",
    )


def other_axis(judgement: Judgement, node: Node) -> str:
    """The axis of a softmax that was taken over another axis than the keys'."""
    for before in node.inputs:
        label = judgement.labels.get(before)
        if (
            label is None
            or not label.stage.name.startswith("scores")
            or before.value.shape != node.value.shape
        ):
            continue
        for axis, name in enumerate(label.axes):
            if name == "S" or len(label.axes) != before.value.dim():
                continue
            made = before.value.softmax(axis)
            if made.dtype == node.value.dtype and torch.allclose(
                made, node.value, equal_nan=True
            ):
                words = {"T": "queries", "H": "heads", "B": "sequences"}.get(name, name)
                return f"The weights sum to 1 over the {words}, not over the keys of one query."
    return ""


def kind_of(names: set[str], inputs: list[Label], node: Node) -> str:
    ranks = [label.stage.rank for label in inputs]
    if "contexts" in names or any(r >= CONTEXTS for r in ranks):
        if any(t.dim() >= 2 for t in node.params.values()):
            return "output"
        return "merge"
    if "weights" in names or "weights" in " ".join(names):
        return (
            "values"
            if len(inputs) > 1 or "values" in names or "keys" in names
            else "softmax"
        )
    if "scores" in names:
        if node.entry.function in ("softmax", "_softmax", "softmin", "log_softmax"):
            return "softmax"
        masky = any(c.dim() >= 2 for c, _ in node.constants)
        return "mask" if masky else "scale"
    if {"queries", "keys", "values"} <= names:
        return "mask"
    if len(names & {"queries", "keys", "values"}) >= 2:
        return "scores"
    if names & {"queries", "keys", "values", "a projection", "another projection"}:
        return "split"
    return "projection"


def constant_factor(
    value: torch.Tensor, reference: Reference
) -> tuple[str, float] | None:
    """(stage, c) when the value is c times the queries, keys or scores, masked or not."""
    found = torch.isfinite(value) & (value.abs() < 1e4)
    for name, tensor, axes in (
        ("scores", reference.raw, ("B", "H", "T", "S")),
        ("queries", reference.q, ("B", "H", "T", "D")),
        ("keys", reference.k, ("B", "H", "S", "D")),
    ):
        if tensor.numel() != value.numel():
            continue
        ratio = float(value[found].abs().max()) if bool(found.any()) else 0.0
        if not ratio:
            return None
        for c in factors(reference, value, tensor):
            stage = Stage(name, tensor * c, axes, 3)
            if match(value, stage, float(value.sum())):
                return name, c
    return None


def factors(
    reference: Reference, value: torch.Tensor, tensor: torch.Tensor
) -> list[float]:
    """The one factor that the sizes of the numbers allow, with either sign."""
    if not bool(torch.isfinite(value).all()):
        return []
    c = float(value.norm() / tensor.norm())
    return [c, -c] if c else []


def name_factor(c: float, reference: Reference) -> str:
    D, H, T = reference.D, reference.q.shape[1], reference.T
    width = D * H
    known = [
        (D**0.5, f"sqrt({D}), the root of head_dim"),
        (D, f"{D}, head_dim"),
        (1 / D, f"1/{D}, one over head_dim"),
        (width**-0.5, f"1/sqrt({width}), the root of the whole width"),
        (width**0.5, f"sqrt({width}), the root of the whole width"),
        (H**-0.5, f"1/sqrt({H}), the root of the number of heads"),
        (T**-0.5, f"1/sqrt({T}), the root of the number of tokens"),
        (D**-1.5, f"{D}**-1.5: scaled more than once"),
        (D**-0.75, f"{D}**-0.75: scaled more than once"),
        (1.0, "1, not scaled"),
    ]
    for exact, words in known:
        if math.isclose(abs(c), exact, rel_tol=1e-4):
            return ("minus " if c < 0 else "") + words
    return f"{c:.4g}"


def alternatives(value: torch.Tensor, reference: Reference) -> tuple[str, str] | None:
    """The wrong turn of softmax, mask or scale that gives these numbers, if one does."""
    D, H, T = reference.D, reference.q.shape[1], reference.T
    root = D**-0.5
    future = reference.future
    masks = {
        "right": future if reference.causal else torch.zeros_like(future),
        "none": torch.zeros_like(future),
        "diagonal": torch.ones_like(future).triu(0),
        "past": torch.ones_like(future).tril(-1),
        "seen": ~future,
        "one more": torch.ones_like(future).triu(2),
    }
    mask_said = {
        "none": "The scores are not masked: every token gets weight from tokens after it.",
        "diagonal": "The mask hides each token from itself as well (its diagonal starts too early).",
        "past": "The mask is the wrong way round: it hides the past and shows the future.",
        "seen": "The mask is the wrong way round: what may be seen is hidden.",
        "one more": "The mask starts one place too late: each token sees the next one.",
    }
    scales = {
        "right": root,
        "not": 1.0,
        "once by the fourth root": D**-0.25,
        "twice": root * root,
        "by the root of the whole width": (D * H) ** -0.5,
        "by head_dim, not its root": 1 / D,
        "by multiplying with the root": D**0.5,
        "by the root of the tokens": T**-0.5,
        "by the root of the number of heads": H**-0.5,
    }
    shapes = []
    count = value.numel()
    if reference.weights.numel() == count:
        shapes.append("weights")
    if reference.contexts.numel() == count:
        shapes.append("contexts")
    if not shapes:
        return None
    total = float(value.sum())
    axes = {3: "keys", 2: "queries", 1: "heads", 0: "sequences"}
    for scale, factor in scales.items():
        for mask, blocked in masks.items():
            scores = (reference.raw * factor).masked_fill(blocked, -1e30)
            for axis, word in axes.items():
                if scale.startswith("once") and (mask, axis) != ("right", 3):
                    continue
                if axis != 3 and (scale, mask) not in (
                    ("right", "right"),
                    ("right", "none"),
                    ("not", "right"),
                ):
                    continue
                if (scale, mask, axis) == ("right", "right", 3):
                    continue
                weights = scores.softmax(axis)
                for what in shapes:
                    made = weights if what == "weights" else weights @ reference.v
                    names = (
                        ("B", "H", "T", "S")
                        if what == "weights"
                        else ("B", "H", "T", "D")
                    )
                    if not match(value, Stage(what, made, names, 6), total):
                        continue
                    if axis != 3:
                        return (
                            "softmax",
                            f"The weights sum to 1 over the {word}, not over the keys of one query.",
                        )
                    if mask != "right":
                        more = (
                            ""
                            if scale == "right"
                            else f" And the scores are scaled {scale}."
                        )
                        return "mask", mask_said[mask] + more
                    said = (
                        "The scores are not divided by"
                        if scale == "not"
                        else f"The scores are scaled {scale}, not by 1 over"
                    )
                    if scale == "twice":
                        said = "The scores are scaled twice by 1 over"
                    return "scale", f"{said} sqrt(head_dim) = sqrt({D})."
    twice = reference.weights.softmax(-1)
    for what, made in (("weights", twice), ("contexts", twice @ reference.v)):
        names = ("B", "H", "T", "S") if what == "weights" else ("B", "H", "T", "D")
        if what in shapes and match(value, Stage(what, made, names, 6), total):
            return (
                "softmax",
                "A second softmax over the weights: blocked tokens get weight again.",
            )
    return None


def same_numbers(
    value: torch.Tensor, others: list[torch.Tensor]
) -> torch.Tensor | None:
    flat = value.reshape(-1).sort().values
    for other in others:
        if other.numel() != value.numel() or not other.is_floating_point():
            continue
        ordered = other.double().reshape(-1).sort().values
        if bool(torch.isclose(flat, ordered, rtol=1e-6, atol=1e-9).all()):
            return other
    return None


def sums_to_one(value: torch.Tensor, shape: tuple[int, ...]) -> int | None:
    for axis in range(len(shape)):
        if shape[axis] > 1 and bool((value.sum(axis) - 1).abs().max() < 1e-6):
            return axis
    return None


def mask_words(value: torch.Tensor, judgement: Judgement, node: Node) -> str:
    """What a masking step did to the scores, read off the numbers."""
    reference = judgement.reference
    before = next((n for n in node.inputs if n in judgement.labels), None)
    if before is None or before.value.shape != value.shape:
        return "It does not block exactly the tokens after each token."
    old = before.value.double()
    moved = value != old
    rows = moved.reshape(-1, *moved.shape[-2:]).any(0)
    if rows.shape != reference.future.shape:
        return "It does not block exactly the tokens after each token."
    future = reference.future
    changed = value[moved]
    if not bool(moved.any()):
        return "It changes nothing: no score is blocked."
    low = float(changed.max())
    if bool((rows == future).all()):
        return (
            f"It blocks the right places with numbers up to {low:.4g}, which are not far below the "
            "other scores: after the softmax the future keeps weight."
        )
    if bool((rows == ~future).all()) or bool(
        (rows == torch.ones_like(future).tril(-1)).all()
    ):
        return "It blocks the past and leaves the future open: the mask is the wrong way round."
    if bool((rows == torch.ones_like(future).triu(0)).all()):
        return "It blocks each token from itself as well: the first token has nothing left to see."
    if bool(rows.all()):
        return "It changes every score, the visible ones too."
    return "It does not block exactly the tokens after each token."


# ---------------------------------------------------------------- deeper causes


def deeper(case: "Case", file: File, node: Node, finding: Finding) -> Finding | None:
    """The constructor's or the mask's own line behind a forward symptom."""
    return wrong_mask(case, file, node, finding) or wrong_setting(
        case, file, node, finding
    )


def mask_form(tensor: torch.Tensor, T: int) -> bool | None:
    """True for a right causal mask of T tokens in any polarity, False for another mask,
    None for what is no mask."""
    if (
        tensor.is_meta
        or tensor.dim() < 2
        or tensor.shape[-1] != tensor.shape[-2]
        or tensor.shape[-1] < 2
    ):
        return None
    if any(size != 1 for size in tensor.shape[:-2]):
        return None
    grid = tensor.reshape(tensor.shape[-2:])
    future = torch.ones(grid.shape, dtype=torch.bool).triu(1)
    if grid.is_floating_point() and bool(grid.isnan().any()):
        return False
    inside, outside = grid[future], grid[~future]
    if bool((grid == grid.reshape(-1)[0]).all()):
        return None
    return bool((inside == inside[0]).all()) and bool((outside == outside[0]).all())


def wrong_mask(
    case: "Case", file: File, node: Node, finding: Finding
) -> Finding | None:
    """The line that makes a mask which is itself wrong."""
    if finding.kind not in ("mask", "softmax"):
        return None
    for tensor, maker in node.constants:
        chain: list[Node] = []
        todo, source = ([maker] if maker else []), None
        while todo:
            at = todo.pop()
            chain.append(at)
            for inner, inner_maker in at.constants:
                if inner_maker is not None:
                    todo.append(inner_maker)
                else:
                    source = inner
        if maker is None:
            source = tensor
        if source is not None and mask_form(source, 0) is False:
            path = path_of(case, source)
            if path is not None:
                from steps.debugger.build import owner_of

                owner, name = owner_of(case.module, path)
                place = file.constructor(owner, name)
                if place is not None:
                    line, column, statement = file.at(place)
                    return Finding(
                        line,
                        column,
                        statement,
                        "mask",
                        finding.message,
                        RIGHT["mask"],
                        finding.got,
                        seen_at=node.line,
                        node=node,
                    )
        for made in sorted(chain, key=lambda n: n.index):
            if mask_form(made.value, 0) is False and mask_shaped(made):
                line, column, statement = file.at(made.entry.place)
                return Finding(
                    line,
                    column,
                    statement,
                    "mask",
                    finding.message,
                    RIGHT["mask"],
                    finding.got,
                    seen_at=node.line,
                    node=node,
                )
    return None


def mask_shaped(node: Node) -> bool:
    return node.value.unique().numel() <= 3


def path_of(case: "Case", tensor: torch.Tensor) -> str | None:
    from steps.debugger.run import state_of

    key = tensor.untyped_storage()._cdata
    for path, held in state_of(case.module).items():
        if held is tensor or held.untyped_storage()._cdata == key:
            return path
    return None


def wrong_setting(
    case: "Case", file: File, node: Node | None, finding: Finding
) -> Finding | None:
    """A number that the constructor keeps and that, put right, mends the module."""
    from steps.debugger.build import meaning

    judgement = case.judgement
    assert judgement is not None
    assert case.run is not None
    place = node.entry.place if node is not None else case.run.place
    _, _, text = file.at(place)
    D, H = judgement.heads.D, judgement.heads.H
    plain = {
        D,
        H,
        D * H,
        case.sizes.d_in,
        case.sizes.context,
        case.sizes.p,
        D**0.5,
        D**-0.5,
    }
    for owner in case.module.modules():
        for name, value in list(vars(owner).items()):
            if (
                type(value) not in (int, float)
                or name.startswith("_")
                or name == "training"
            ):
                continue
            told = meaning(name)
            right = {"H": H, "D": D}.get(told or "")
            if type(owner).__module__.startswith("torch.nn"):
                if not (
                    isinstance(owner, nn.Softmax) and name == "dim" and value != -1
                ):
                    continue
                tries: list[Any] = [-1]
            elif right is not None and value != right:
                tries = [right]
            elif value in plain or not re.search(rf"\.{re.escape(name)}\b", text):
                continue
            else:
                tries = [D**-0.5, D**0.5, D, H, 1.0]
            for attempt in tries:
                setattr(owner, name, attempt)
                try:
                    mended = is_clean(case)
                finally:
                    setattr(owner, name, value)
                if not mended:
                    continue
                holder, held = holder_of(case, owner, name)
                at = file.constructor(holder, held)
                if at is not None and file.tree is not None:
                    at = given(file.tree, type(holder).__name__, at) or at
                if at is None:
                    continue
                line, column, made = file.at(at)
                said = f"{attempt:.4g}" if isinstance(attempt, float) else str(attempt)
                return Finding(
                    line,
                    column,
                    made,
                    finding.kind,
                    f"The constructor sets {name} = {value:.4g}; with {said} the module is right. {finding.message}",
                    finding.expected,
                    finding.got,
                    seen_at=place.line if place else None,
                    node=node,
                )
    return None


def holder_of(case: "Case", owner: nn.Module, name: str) -> tuple[Any, str]:
    """Who made a setting: for a layer of torch.nn, the module that holds the layer."""
    if not type(owner).__module__.startswith("torch.nn"):
        return owner, name
    for module in case.module.modules():
        for child, value in module.named_children():
            if value is owner:
                return module, child
    return owner, name


def is_clean(case: "Case", replace: dict[int, torch.Tensor] | None = None) -> bool:
    """Whether the module, as it is now or with results replaced, has no fault."""
    from steps.debugger.examine import copy_case, judge_run, run_twice

    again = copy_case(case, case.said, case.how)
    run_twice(again)
    assert again.run is not None
    if again.run.error is not None and not replace:
        return False
    if replace:
        torch.default_generator.manual_seed(1)
        run = record(
            case.module,
            case.call(case.module, case.x),
            case.x,
            case.file,
            weights=case.weights,
            replace=replace,
        )
        output = run.output
        judgement = case.judgement
        assert judgement is not None
        if output is None:
            return False
        if any(s.rank == 8 for s in judgement.reference.stages):
            return any(
                match(output.double(), s, float(output.double().sum())) is not None
                for s in judgement.reference.stages
                if s.rank == 8
            )
        label = judgement.reference.label(output)
        return label is not None and label.stage.rank >= CONTEXTS
    judge_run(again)
    return again.judgement is not None and again.judgement.clean


# ---------------------------------------------------------------- raised


def raised(case: "Case", file: File) -> Finding:
    """The operation that raised is the first wrong one: name the cause."""
    run, judgement = case.run, case.judgement
    assert run is not None
    assert run.error is not None
    line, column, statement = file.at(run.place)
    labels = judgement.labels if judgement is not None else {}
    error = first_line(run.error)
    kind, words = "raises", []
    if run.failed is None:
        finding = Finding(
            line,
            column,
            statement,
            kind,
            f"It raises {error}.",
            got=error,
            seen_at=line,
        )
        return (
            wrong_setting(case, file, None, finding) or finding
            if judgement
            else finding
        )
    _, func, args, kwargs = run.failed
    inputs = []
    for tensor in tensors_in((args, kwargs)):
        node = run.node_of(tensor)
        shape = tuple(tensor.shape)
        if node is not None and node in labels:
            inputs.append(labels[node])
            axes = f" ({', '.join(labels[node].axes)})" if labels[node].axes else ""
            words.append(f"{labels[node].stage.name}{axes} of shape {shape}")
        else:
            path = path_of(case, tensor)
            words.append((path or "a tensor") + f" of shape {shape}")
    names = {label.stage.name.split(",")[0] for label in inputs}
    fake = Node(-1, run.nodes[-1].entry if run.nodes else None)  # type: ignore[arg-type]
    layer = next(
        (
            p
            for t in tensors_in((args, kwargs))
            if (p := path_of(case, t)) and p in case.weights
        ),
        None,
    )
    if layer:
        fake.params = {layer: case.weights[layer]}
    function = getattr(func, "__name__", "")
    if function in (
        "view",
        "reshape",
        "unflatten",
        "transpose",
        "permute",
        "cat",
        "stack",
    ):
        kind = (
            "merge"
            if any(label.stage.rank >= CONTEXTS for label in inputs)
            else "split"
        )
    elif "masked_fill" in function or function in ("where", "add", "__add__"):
        kind = "mask"
    elif inputs:
        fake.entry = type("Entry", (), {"function": function})()
        kind = kind_of(names, inputs, fake)
    else:
        kind = "projection"
    message = f"{function} is given {', '.join(words)} and raises {error}."
    if "view" in function and "stride" in str(run.error):
        message += " view needs the numbers in order; after transpose they are not: contiguous() first, or reshape."
    if "overflow" in str(run.error):
        kind = "mask"
    finding = Finding(
        line, column, statement, kind, message, RIGHT.get(kind, ""), error, seen_at=line
    )
    if layer is not None and function == "linear":
        wide = case.weights[layer]
        given = next(
            (
                t.shape[-1]
                for t in tensors_in(args)
                if t.shape[-1:] != wide.shape[-1:] or t is not wide
            ),
            None,
        )
        from steps.debugger.build import owner_of

        path = layer.rpartition(".")[0]
        owner, name = owner_of(case.module, path) if path else (case.module, layer)
        source = next(
            (n for t in tensors_in(args) if (n := run.node_of(t)) is not None), None
        )
        bad = source in {p.node for p in case.found}
        at = file.constructor(owner, name)
        if bad:
            finding.message = f"{name!r} is applied to {words[0]}, which a layer has projected already, not to x: {error}."
            finding.kind, finding.expected = "projection", RIGHT["projection"]
        elif given == wide.shape[-1] * (judgement.heads.H if judgement else 0):
            finding.kind = "constructor"
            finding.message = (
                f"Every head is as wide as the whole: joined, they have {given} features, and "
                f"{name!r} takes {wide.shape[-1]}. The constructor did not divide the width by the heads."
            )
            finding.expected = "head_dim = d_out // num_heads"
        elif at is not None and given != wide.shape[-1]:
            where = file.at(at)
            finding.line, finding.column, finding.statement = where
            finding.kind = "constructor"
            finding.message = (
                f"The layer {name!r} takes {wide.shape[-1]} features and is given {words[0]}: "
                f"{given} features."
            )
            finding.expected = f"nn.Linear({given}, ...)"
        return finding
    if judgement is not None:
        return wrong_setting(case, file, None, finding) or finding
    return finding


def two_roles(case: "Case", file: File) -> Finding | None:
    """One layer that does the work of two, or of two heads."""
    judgement = case.judgement
    if judgement is None:
        return None
    roles = judgement.heads.roles
    bare = [role for role, ps in roles.items() if not ps]
    if len(bare) == 1:
        return unprojected(case, file, bare[0])
    if not judgement.heads.layout:
        owners: dict[tuple[str, ...], str] = {}
        for role, ps in roles.items():
            for p in ps[:1]:
                if p.paths in owners:
                    return shared(case, file, p, owners[p.paths], role)
                owners[p.paths] = role
    for role, ps in roles.items():
        seen: dict[tuple[str, ...], int] = {}
        for number, p in enumerate(ps):
            if p.paths in seen:
                spare = sibling_unused(case, p.paths[0])
                line, column, statement = file.at(
                    (joined_at(case) or p.node.entry.place)
                    if spare and re.search(r"\.\d+\.", p.layer)
                    else p.node.entry.place
                    if spare
                    else shared_place(case, file, p)
                )
                return Finding(
                    line,
                    column,
                    statement,
                    "projection",
                    f"Heads {seen[p.paths] + 1} and {number + 1} use the same weights ({p.layer}), so "
                    "they are one head computed twice.",
                    "a layer of its own for every head",
                    f"one layer for the {WORDS[role]} of several heads",
                    seen_at=p.node.line,
                    node=p.node,
                )
            seen[p.paths] = number
    H = judgement.heads.H
    for role, ps in roles.items():
        for p in ps[:1]:
            weight = case.weights.get(p.paths[0])
            if (
                weight is None
                or H < 2
                or len(ps) > 1
                or judgement.heads.kv_heads
                or p.deep
            ):
                continue
            if weight.numel() * H < p.width * case.sizes.d_in:
                line, column, statement = file.at(p.node.entry.place)
                return Finding(
                    line,
                    column,
                    statement,
                    "projection",
                    f"The input is cut into heads first, and one small layer, {p.layer!r} of shape "
                    f"{tuple(weight.shape)}, makes the {WORDS[role]} of every head: the heads share their weights.",
                    "a projection from all features to all heads, then the split",
                    f"{H} heads, one layer",
                    seen_at=p.node.line,
                    node=p.node,
                )
    for role, ps in roles.items():
        for p in ps:
            if p.deep and any(
                not other.deep for other_ps in roles.values() for other in other_ps
            ):
                line, column, statement = file.at(p.node.entry.place)
                return Finding(
                    line,
                    column,
                    statement,
                    "projection",
                    f"The {WORDS[role]} are made from numbers that a layer has projected already, not from x.",
                    RIGHT["projection"],
                    f"{WORDS[role]} = {p.layer}(another projection)",
                    seen_at=p.node.line,
                    node=p.node,
                )
    crossed = crossed_layers(case)
    if crossed is not None and judgement.heads.conflicts:
        node, role, layer = crossed
        line, column, statement = file.at(node.entry.place)
        return Finding(
            line,
            column,
            statement,
            "projection",
            f"The {WORDS[role]} are made by {layer!r}.",
            RIGHT["projection"],
            f"{WORDS[role]} from {layer!r}",
            seen_at=node.line,
            node=node,
        )
    return None


def unprojected(case: "Case", file: File, role: str) -> Finding | None:
    """A role that x itself plays, with no layer before it."""
    judgement, run = case.judgement, case.run
    assert judgement is not None
    assert run is not None
    before: set[Node] = set()  # what the layers are given
    todo = [p.node for p in case.found]
    while todo:
        node = todo.pop()
        before.add(node)
        todo += [n for n in node.inputs if n not in before]
    for node in run.nodes:
        if node not in case.plain or node in before:
            continue
        place = alias(file.tree, node.entry.place) or node.entry.place
        line, column, statement = file.at(place)
        return Finding(
            line,
            column,
            statement,
            "projection",
            f"The {WORDS[role]} are x itself: no layer makes them.",
            RIGHT["projection"],
            f"{WORDS[role]} equal to x",
            seen_at=node.line,
            node=node,
        )
    return None


def sibling_unused(case: "Case", path: str) -> bool:
    """Whether the list that a weight is in has others, which no projection used."""
    pattern = re.sub(r"\\\.\d+", r"\\.\\d+", re.escape(path))
    used = {p for projection in case.found for p in projection.paths}
    return any(
        re.fullmatch(pattern, other) and other not in used for other in case.weights
    )


def joined_at(case: "Case") -> Place | None:
    """Where the outputs of heads that are modules of their own are put together."""
    judgement, run = case.judgement, case.run
    assert judgement is not None
    assert run is not None
    for node in run.nodes:
        labels = [judgement.labels.get(n) for n in node.inputs]
        heads = [la for la in labels if la is not None and la.index.startswith("head")]
        if (
            len(heads) > 1
            and len(heads) == len(labels)
            and node.entry.origin == "copied"
        ):
            return node.entry.place
    return None


def idle_layer(case: "Case") -> bool:
    """Whether the module has a matrix that no operation read: the one that was meant."""
    run = case.run
    assert run is not None
    read = {id(t) for n in run.nodes for t in n.params.values()}
    held = [t for t in case.weights.values() if t.dim() >= 2]
    return any(id(t) not in read for t in held)


def made_twice(case: "Case", file: File, p: Any) -> Place | None:
    """Where the constructor gives a second attribute the layer that another one has."""
    from steps.debugger.build import owner_of

    try:
        layer, _ = owner_of(case.module, p.paths[0])
    except (AttributeError, KeyError, IndexError):
        return None
    places = [
        place
        for owner in case.module.modules()
        for name, value in owner._modules.items()
        if value is layer and (place := file.constructor(owner, name)) is not None
    ]
    places.sort(key=lambda place: place.line)
    return places[1] if len(places) > 1 and layer is not case.module else None


def shared(case: "Case", file: File, p: Any, first: str, second: str) -> Finding:
    """The line that gave a role another role's layer."""
    at = p.node
    again = [o for o in case.found if o.paths == p.paths]
    for other in again:
        role = role_in(other.node.entry.name) if other.node.entry.name else None
        if role and role_in(other.layer) and role != role_in(other.layer):
            at = other.node
            break
    else:
        if len(again) > 1:
            at = again[1].node
    line, column, statement = file.at(made_twice(case, file, p) or at.entry.place)
    return Finding(
        line,
        column,
        statement,
        "projection",
        f"One layer, {p.layer!r}, makes the {WORDS[first]} and the {WORDS[second]}: they are the same numbers.",
        RIGHT["projection"],
        f"{WORDS[second]} equal to the {WORDS[first]}",
        seen_at=at.line,
        node=at,
    )


def shared_place(case: "Case", file: File, p: Any) -> Place | None:
    from steps.debugger.build import owner_of

    top = p.paths[0].split(".")[0]
    place = None
    try:
        owner, name = owner_of(case.module, top)
        place = file.constructor(owner, name)
    except (AttributeError, KeyError, IndexError):
        pass
    return place or p.node.entry.place


def clean_message(case: "Case") -> str:
    judgement = case.judgement
    assert judgement is not None
    H = judgement.heads.H
    heads = f"{H} heads were" if H > 1 else "one head was"
    mask = (
        "no token reads a later one"
        if case.causal
        else "no mask was asked for and none is applied"
    )
    return (
        f"No fault found. From its own projections of x, {heads} computed separately and "
        f"plainly, and the output is equal to theirs; {mask}."
    )


__all__ = ["CLOSE", "File", "Finding", "blame", "diagnosis", "mark", "raised", "rows"]
