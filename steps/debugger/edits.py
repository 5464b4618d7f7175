"""The grammar of changes: what a line of a reader's file might read instead."""

import ast
import builtins
import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from types import MethodType
from typing import Any

from steps.debugger.program import Part, Program, Seen, stored
from steps.debugger.run import wrapped
from steps.pytorch import nn, torch

Span = tuple[int, int, int, int]  # first line, column, last line, column; in bytes
INF = "float('-inf')"
# Methods whose whole numbers are axes.
AXES = {
    "transpose", "swapaxes", "swapdims", "movedim", "permute", "softmax", "log_softmax",
    "cat", "concat", "stack", "unbind", "chunk", "split", "flatten", "unflatten",
    "unsqueeze", "squeeze", "sum", "mean", "repeat_interleave", "narrow", "select",
    "logsumexp", "flip", "cumsum", "index_select", "normalize", "size", "amax", "max",
    "Softmax",
}  # fmt: skip
SHAPES = {"view", "reshape", "unflatten", "expand"}
TWINS = {
    "triu": "tril", "tril": "triu", "view": "reshape", "matmul": "mul",
    "mul": "matmul", "log_softmax": "softmax", "ones": "zeros", "zeros": "ones",
    "masked_fill": "masked_fill_", "sum": "mean", "mean": "sum", "sin": "cos",
    "cos": "sin", "stack": "cat", "cat": "stack", "log": "exp",
}  # fmt: skip
COMPARED = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">",
    ast.GtE: ">=",
}  # fmt: skip
OPERATORS = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/ @ +"),
    ast.Div: ("/", "*"), ast.MatMult: ("@", "*"), ast.FloorDiv: ("//", "* /"),
    ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"), ast.Pow: ("**", "*"),
}  # fmt: skip
KNOWN = torch.Tensor, nn.Module, int, list, tuple  # what one name may stand for
UNSAFE = re.compile(r"\b(append|pop|extend|update|print|input|open|exit|exec|eval)\b")


@dataclass(frozen=True)
class Edit:
    """One change, or several at once, and what it costs to believe in it."""

    cost: float
    kind: str  # of the fault that it mends
    puts: tuple[tuple[Span, str], ...]  # what stands where
    like: tuple = ()  # the same at another statement of the same form has the same

    @property
    def line(self) -> int:
        return min(span[0] for span, _ in self.puts)


def applied(lines: list[str], edit: Edit) -> dict[int, str]:
    """The lines that a change touches, by their numbers, as they must read."""
    made: dict[int, str] = {}
    for (first, start, last, end), new in sorted(edit.puts, reverse=True):
        rows = [made.get(n, lines[n - 1]).encode() for n in range(first, last + 1)]
        made[first] = (rows[0][:start] + new.encode() + rows[-1][end:]).decode()
        made |= dict.fromkeys(range(first + 1, last + 1), "")
    return made


def span(node: Any) -> Span:
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def end_of(node: Any) -> Span:
    """The place after a node."""
    return node.end_lineno, node.end_col_offset, node.end_lineno, node.end_col_offset


def between(one: Any, other: Any) -> Span:
    """From the end of a node to the start of another."""
    return one.end_lineno, one.end_col_offset, other.lineno, other.col_offset


def called(call: ast.Call) -> str:
    """The last part of the name of what is called."""
    func = call.func
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")


def whole(node: Any) -> int | None:
    """The whole number that stands there, of either sign."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError):
        return None
    return value if type(value) is int else None


def form(node: ast.AST) -> str:
    """A statement without its names and numbers."""
    leaves = (ast.Name, ast.Attribute, ast.Constant, ast.expr_context)
    return " ".join(
        type(part).__name__ for part in ast.walk(node) if not isinstance(part, leaves)
    )


@dataclass(eq=False)
class Spot:
    """One statement that ran, with what was in scope before it."""

    program: Program
    part: Part
    statement: ast.stmt
    scope: dict[str, Any]
    outside: Any
    raised: bool  # whether it is the one that raised
    T: int
    D: int
    values: dict[ast.AST, Any] = field(default_factory=dict)

    def evaluate(self, node: ast.AST | str, more: dict[str, Any] | None = None) -> Any:
        """The value of an expression before the statement ran; None if it has none."""
        text = node if isinstance(node, str) else ast.unparse(node)
        if UNSAFE.search(text) or re.search(r"[a-z]_\(", text):
            return None
        try:
            if " for " in text and stored(ast.parse(text)):
                return None  # a comprehension that would change a module
            with torch.no_grad():
                found = eval(text, {**self.outside, **self.scope, **(more or {})})
        except Exception:
            return None
        hidden = isinstance(found, torch.Tensor) and wrapped(found)
        return None if hidden else found  # no numbers are seen inside vmap

    def inner(self, node: ast.AST) -> dict[str, Any]:
        """What a comprehension around an expression names, for its first round."""
        around = []
        while node is not self.statement and node in self.program.parents:
            node = self.program.parents[node]
            around.append(node)
        names: dict[str, Any] = {}
        for one in around[::-1]:
            for part in getattr(one, "generators", ()):
                text = f"next(iter({ast.unparse(part.iter)}), None)"
                target = part.target
                first = self.evaluate(text, names)
                single = isinstance(target, ast.Name)
                for name, value in zip(
                    [target] if single else getattr(target, "elts", ()),
                    [first] if single else first if isinstance(first, tuple) else (),
                    strict=False,
                ):
                    names[ast.unparse(name)] = value
        return names

    def value(self, node: ast.AST) -> Any:
        if node not in self.values:
            more = self.inner(node) if self.has_inner else None
            self.values[node] = self.evaluate(node, more)
        return self.values[node]

    def shape(self, node: ast.AST) -> tuple[int, ...] | None:
        """The shape of an expression that is a tensor."""
        value = self.value(node)
        return tuple(value.shape) if isinstance(value, torch.Tensor) else None

    def text(self, node: ast.AST) -> str:
        first, start, last, end = span(node)
        if first != last:
            return ast.unparse(node)
        return self.program.lines[first - 1].encode()[start:end].decode()

    def safe(self, node: ast.AST) -> str:
        """Its text, in parentheses where something is to be added to it."""
        atom = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant)
        text = self.text(node)
        return text if isinstance(node, atom) else f"({text})"

    def put(self, node: ast.AST, new: str) -> tuple[Span, str]:
        """New text for a node, in parentheses where what surrounds it asks for them."""
        around = self.program.parents.get(node)
        tight = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Attribute, ast.Starred)
        head = isinstance(around, ast.Call | ast.Subscript)
        head = head and node in (
            getattr(around, "func", None),
            getattr(around, "value", None),
        )
        loose = re.fullmatch(r"[\w.]+(\(.*\)|\[.*\])?", new) is None
        first, start, last_line, end = span(node)
        before = self.program.lines[first - 1].encode()[:start][-1:]
        behind = self.program.lines[last_line - 1].encode()[end:][:1]
        open_ = (before, behind) != (b"(", b")")
        if loose and open_ and (isinstance(around, tight) or head):
            new = f"({new})"
        return span(node), new

    @cached_property
    def has_inner(self) -> bool:
        return any(hasattr(node, "generators") for node in ast.walk(self.statement))

    @cached_property
    def square(self) -> tuple[int, int]:
        return self.T, self.T

    @cached_property
    def known(self) -> dict[str, Any]:
        """Names and attributes that this function can speak of, with their values."""
        texts = {
            ast.unparse(node): None
            for node in ast.walk(self.part.node)
            if isinstance(node, ast.Name | ast.Attribute)
            and isinstance(node.ctx, ast.Load)
            and not isinstance(getattr(node, "value", None), ast.Call)
        }
        owner = self.scope.get("self")
        if isinstance(owner, nn.Module):
            own = (*vars(owner), *owner._modules, *owner._parameters, *owner._buffers)
            texts |= {f"self.{n}": None for n in own if n[0] != "_" and n != "training"}
        texts |= {
            name: None for name in self.scope if name.isidentifier() and name != "self"
        }
        found = {text: self.evaluate(text) for text in texts}
        kinds = (*KNOWN, float)
        return {text: v for text, v in found.items() if isinstance(v, kinds)}

    @cached_property
    def missing(self) -> list[str]:
        """Names that the function reads and nothing gives a value."""
        named = [n for n in ast.walk(self.part.node) if isinstance(n, ast.Name)]
        known = {n.id for n in named if not isinstance(n.ctx, ast.Load)}
        known |= {a.arg for a in ast.walk(self.part.node) if isinstance(a, ast.arg)}
        known |= {*self.outside, *vars(builtins)}
        return [n for n in dict.fromkeys(n.id for n in named) if n not in known]

    def sizes(self, wanted: int) -> list[str]:
        """The reader's own words for a size, the shortest first."""
        names = [t for t, v in self.known.items() if type(v) is int and v == wanted]
        return sorted(names, key=len)

    @cached_property
    def head_width(self) -> list[str]:
        """Words for the features of one head."""
        names = self.sizes(self.D)
        whole_numbers = {t: v for t, v in self.known.items() if type(v) is int}
        for (a, m), (b, n) in itertools.permutations(whole_numbers.items(), 2):
            if n > 1 and m == self.D * n and not names:
                names.append(f"({a} // {b})")
        tensors = {t: v for t, v in self.known.items() if isinstance(v, torch.Tensor)}
        for name, value in tensors.items():
            if not names and value.dim() > 2 and value.shape[-1] == self.D:
                names.append(f"{name}.shape[-1]")
        return names[:2]

    @cached_property
    def part_forms(self) -> dict[str, str]:
        """Names of the function, with the form of what each is given."""
        forms: dict[str, str] = {}
        for node in ast.walk(self.part.node):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    several = isinstance(target, ast.Tuple)
                    made = str(node.lineno) if several else form(node.value)
                    for part in getattr(target, "elts", [target]):
                        forms[ast.unparse(part)] = made
        forms |= {a.arg: "argument" for a in self.part.node.args.args}
        layers = {t: v for t, v in self.known.items() if isinstance(v, nn.Module)}
        return forms | {text: type(layer).__name__ for text, layer in layers.items()}

    @cached_property
    def length(self) -> str:
        """A word for the number of tokens, or ""."""
        tensors = [(t, v) for t, v in self.known.items() if isinstance(v, torch.Tensor)]
        words = self.sizes(self.T)
        words += [
            f"{name}.shape[{axis - value.dim()}]"
            for name, value in tensors
            for axis, n in enumerate(value.shape)
            if n == self.T and value.is_floating_point() and not words
        ]
        return next(iter(words), "")


Found = tuple[float, str, tuple, list[tuple[Span, str]]]  # cost, kind, which, puts
Rule = Callable[[Any, Spot], Iterator[Found]]


def is_square(at: Spot, node: ast.AST) -> bool:
    """Whether an expression has a number for each pair of tokens."""
    shape = at.shape(node)
    return shape is not None and shape[-2:] == at.square


def moved(at: Spot, node: ast.AST) -> str:
    """What kind of fault it is that an arrangement is wrong."""
    shape = at.shape(node)
    if shape is not None and shape[-2:] == at.square:
        return "scores"
    return "merge" if shape is not None and len(shape) == 3 else "split"


# ---------------------------------------------------------------- arrangements


def owner_of(call: ast.Call, at: Spot) -> ast.expr | None:
    """The tensor that a call works on."""
    if isinstance(call.func, ast.Attribute):
        value = at.value(call.func.value)
        library = isinstance(call.func.value, ast.Name) and value is not None
        tensor = isinstance(value, torch.Tensor)
        if tensor or not (library or isinstance(value, nn.Module)):
            return call.func.value
    return call.args[0] if call.args else None


def other_axes(node: Any, at: Spot) -> Iterator[Found]:
    """Another axis, or other axes, in a call."""
    if not isinstance(node, ast.Call) or called(node) not in AXES:
        return
    owner = owner_of(node, at)
    shape = at.shape(owner) if owner is not None else None
    dims = len(shape) if shape else 4
    dims += called(node) in ("unsqueeze", "stack")
    given = [(a, whole(a)) for a in (*node.args, *(k.value for k in node.keywords))]
    told = [(a, n) for a, n in given if n is not None]
    kind = "softmax" if "softmax" in called(node).lower() else moved(at, node)
    if called(node) in ("transpose", "swapaxes", "swapdims") and len(told) == 2:
        (a, m), (b, n) = told
        lower = dims if m < 0 and n < 0 else 0
        for i, j in itertools.combinations(range(dims), 2):
            if {i, j} != {m % dims, n % dims}:
                new = [at.put(a, str(i - lower)), at.put(b, str(j - lower))]
                yield 1.0, kind, (i, j), new
    elif called(node) == "permute" and len(told) == dims <= 5:
        for order in itertools.permutations(range(dims)):
            changed = [(a, i) for (a, n), i in zip(told, order, strict=True) if i != n]
            cost = 1.0 if len(changed) < 3 else 1.2
            if changed:
                yield cost, kind, order, [at.put(a, str(i)) for a, i in changed]
    elif called(node) != "permute":
        for a, n in told:
            for i in range(dims):
                if i != n % dims:
                    axis = str(i - dims if n < 0 else i)
                    yield 1.0, kind, (i,), [at.put(a, axis)]


def row_of(call: ast.Call, at: Spot) -> list[ast.expr]:
    """The sizes or axes that a call is given, one after the other."""
    for a in call.args:
        if isinstance(a, ast.Tuple | ast.List):
            return a.elts
    rest = call.args
    if isinstance(call.func, ast.Attribute) and rest:
        owner = at.value(call.func.value)
        rest = rest if isinstance(owner, torch.Tensor | None) else rest[1:]
    return rest


def sizes_in_another_order(node: Any, at: Spot) -> Iterator[Found]:
    """The sizes of a view in another order; and moved to where they were."""
    if not isinstance(node, ast.Call) or called(node) not in SHAPES:
        return
    row = row_of(node, at)
    if not 2 <= len(row) <= 5:
        return
    texts, kind = [at.text(a) for a in row], moved(at, node)
    n = len(row)
    for size in row if "-1" not in texts and called(node) != "expand" else ():
        yield 1.3, kind, ("rest", at.text(size)), [at.put(size, "-1")]
    place = *span(row[0])[:2], *span(row[-1])[2:]
    end = end_of(node)
    for order in itertools.permutations(range(n)):
        if list(order) == sorted(order) or len({*texts}) < 2:
            continue
        new = place, ", ".join(texts[i] for i in order)
        far = sum(i != j for i, j in enumerate(order)) > 2
        yield 1.1 + 0.2 * far, kind, ("order", order), [new]
        if called(node) == "expand":
            continue
        back = [order.index(i) for i in range(n)]
        yield 1.2 + 0.3 * far, kind, ("moved", order), [new, (end, mover(back))]


def mover(order: list[int]) -> str:
    """A call that arranges axes in this order."""
    apart = [i for i, j in enumerate(order) if i != j]
    if len(apart) == 2:
        return f".transpose({apart[0]}, {apart[1]})"
    return f".permute({', '.join(map(str, order))})"


def moved_first(node: Any, at: Spot) -> Iterator[Found]:
    """Axes exchanged before a view that joins some; view that asks for contiguity."""
    if not isinstance(node, ast.Call) or called(node) not in (*SHAPES, "flatten"):
        return
    func = node.func
    if not isinstance(func, ast.Attribute):
        return
    if called(node) == "view":
        yield 0.9, "merge", ("reshape",), [renamed(func, ".reshape")]
    shape, kind = at.shape(func.value), moved(at, node)
    name = ".reshape" if called(node) == "view" else f".{called(node)}"
    for order in itertools.permutations(range(len(shape or "")) if shape else ()):
        apart = sum(i != j for i, j in enumerate(order))
        if apart and len(order) <= 4:
            new = mover(list(order)) + name
            cost = 1.2 + 0.3 * (apart > 2)
            yield cost, kind, ("before", order), [renamed(func, new)]


def renamed(func: ast.Attribute, new: str) -> tuple[Span, str]:
    """Other text for the last part of a dotted name, its dot included."""
    last_line, end = span(func)[2:]
    return (last_line, end - len(func.attr) - 1, last_line, end), new


def axes_exchanged(node: Any, at: Spot) -> Iterator[Found]:
    """One exchange of axes more, at any tensor."""
    shape = at.shape(node)
    if shape is None or not 2 <= len(shape) <= 5 or at.value(node).dtype == torch.bool:
        return
    if at.value(node).is_floating_point() and len(shape) > 2:
        for axis in range(len(shape)):
            new = f"{at.safe(node)}.softmax(dim={axis})"
            yield 1.9, "softmax", ("softmax", axis), [at.put(node, new)]
    whole_value = getattr(at.statement, "value", None) is node
    if len(shape) == 5 and whole_value:
        for order in itertools.permutations(range(5)):
            new = at.safe(node) + mover(list(order))
            yield 1.8, moved(at, node), order, [at.put(node, new)]
    for i, j in itertools.combinations(range(len(shape)), 2):
        if shape[i] > 1 or shape[j] > 1:
            new = f"{at.safe(node)}.transpose({i}, {j})"
            yield 1.8, moved(at, node), (i, j), [at.put(node, new)]


def heads_joined(node: Any, at: Spot) -> Iterator[Found]:
    """The last two axes of a tensor made one, as a layer wants them."""
    shape = at.shape(node)
    if shape is not None and len(shape) == 4 and at.value(node).is_floating_point():
        text = at.safe(node)
        cost = 1.3 if getattr(at.statement, "value", None) is node else 1.6
        for more_ in (".flatten(2)", ".transpose(1, 2).flatten(2)"):
            yield cost, "merge", (more_,), [at.put(node, text + more_)]


def left_out(node: Any, at: Spot) -> Iterator[Found]:
    """A call that is not made; one side of an operation alone."""
    method = isinstance(getattr(node, "func", None), ast.Attribute)
    if isinstance(node, ast.Call):
        kind = call_kind(node, at)
        owner: list[Any] = [getattr(node.func, "value", None)] if method else []
        for inner in (*owner, *node.args):
            if isinstance(inner, ast.Starred):
                continue
            value = at.value(inner)
            if isinstance(value, torch.Tensor) or (value is None and at.raised):
                yield 1.4, kind, ("out", type(inner)), [at.put(node, at.text(inner))]
    elif isinstance(node, ast.BinOp):
        for side in (node.left, node.right):
            kept = at.value(side)
            if type(kept) is type(at.value(node)) and kept is not None:
                yield (
                    1.3,
                    "scale",
                    ("side", side is node.left),
                    [at.put(node, at.text(side))],
                )
    elif isinstance(node, ast.UnaryOp):
        kind = "mask" if isinstance(node.op, ast.Invert | ast.Not) else "scale"
        yield 1.0, kind, ("unary",), [at.put(node, at.text(node.operand))]


def call_kind(node: ast.Call, at: Spot) -> str:
    name = called(node)
    for word, kind in (("drop", "dropout"), ("softmax", "softmax"), ("mask", "mask")):
        if word in name:
            return kind
    value = at.value(node.func)
    return "output" if isinstance(value, nn.Module) else moved(at, node)


def twins(node: Any, at: Spot) -> Iterator[Found]:
    """The function that is easily taken for this one."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return
    name, func = called(node), node.func
    kind = "mask" if name in ("triu", "tril", "ones", "zeros") else moved(at, node)
    if name in TWINS:
        yield 1.0, kind, (name,), [renamed(func, f".{TWINS[name]}")]
    if name == "repeat" and node.args:
        counts = [at.value(a) for a in row_of(node, at)]
        more = [n for n, c in enumerate(counts) if c != 1]
        if len(more) == 1:
            times = at.text(row_of(node, at)[more[0]])
            new = f"{at.safe(func.value)}.repeat_interleave({times}, dim={more[0]})"
            yield 1.0, "repeat", (name,), [at.put(node, new)]


# ---------------------------------------------------------------- masks and scales


def masks(node: Any, at: Spot) -> Iterator[Found]:
    """A mask turned round, or cut to the tokens that there are."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        now, right = type(node.ops[0]), node.comparators[0]
        for op, sign in COMPARED.items():
            if op is not now and now in COMPARED:
                new = f"{at.text(node.left)} {sign} {at.text(right)}"
                yield 1.0, "mask", (sign,), [at.put(node, new)]
    shape = at.shape(node)
    if shape is None:
        return
    if at.value(node).dtype == torch.bool:
        yield 1.1, "mask", ("~",), [at.put(node, f"~{at.safe(node)}")]
    plain = isinstance(node, ast.Name | ast.Attribute)
    plain = plain and not isinstance(at.program.parents.get(node), ast.Subscript)
    if len(shape) >= 2 and shape[-1] == shape[-2] > at.T and at.length and plain:
        cut = f"[..., :{at.length}, :{at.length}]"
        yield 1.1, "mask", ("cut",), [at.put(node, at.safe(node) + cut)]


def later_rows(node: Any, at: Spot) -> Iterator[Found]:
    """Positions counted from what is kept of earlier tokens, not from 0."""
    if not isinstance(node, ast.Call) or called(node) != "arange":
        return
    count = at.value(node.args[0]) if len(node.args) == 1 else None
    for name, other in at.known.items():
        if type(other) is type(count) is int and other > count:
            new = f"{name} - {at.text(node.args[0])}, {name}"
            yield 1.2, "length", (name,), [(span(node.args[0]), new)]


def fills(node: Any, at: Spot) -> Iterator[Found]:
    """A mask of another diagonal, or another number where it hides."""
    if not isinstance(node, ast.Call):
        return
    if called(node) in ("triu", "tril"):
        given = (*node.args, *(k.value for k in node.keywords))
        told = [a for a in given if type(at.value(a)) is int]
        for step in ("+ 1", "- 1"):
            if told and whole(told[-1]) is None:
                new = f"{at.text(told[-1])} {step}"
                yield 1.0, "mask", (step,), [at.put(told[-1], new)]
        for diagonal in (-1, 0, 1):
            if told and at.value(told[-1]) != diagonal:
                yield 1.0, "mask", (diagonal,), [at.put(told[-1], str(diagonal))]
            if not told and diagonal:
                yield 1.0, "mask", (diagonal,), [last(node, f"diagonal={diagonal}")]
    if called(node).startswith("masked_fill") and node.args:
        for other in (INF, "0.0"):
            if at.text(node.args[-1]) != other:
                yield 1.0, "mask", (other,), [at.put(node.args[-1], other)]


def last(call: ast.Call, new: str) -> tuple[Span, str]:
    """One argument more at the end of a call."""
    line, end = span(call)[2:]
    place = line, end - 1, line, end - 1
    return place, f", {new}" if call.args or call.keywords else new


def scales(node: Any, at: Spot) -> Iterator[Found]:
    """The number that scores are multiplied with or divided by."""
    value = at.value(node)
    number = isinstance(value, float) or (
        isinstance(value, torch.Tensor)
        and value.dim() == 0
        and value.dtype.is_floating_point
    )
    if type(value) is int and isinstance(at.program.parents.get(node), ast.BinOp):
        number = True
    if number and not isinstance(node, ast.UnaryOp):
        for width in at.head_width:
            for power in ("0.5", "-0.5"):
                named = isinstance(node, ast.Name | ast.Attribute)
                cost = 1.4 if named else 1.2  # rather where the name is made
                yield cost, "scale", (power,), [at.put(node, f"{width} ** {power}")]
    if number and value in (float("inf"), float("-inf")):
        yield 0.8, "mask", ("-",), [at.put(node, f"-{at.safe(node)}")]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        power = at.value(node.right)
        for new in ("0.5", "-0.5"):
            if type(power) in (int, float) and power != float(new):
                yield 1.0, "scale", (new,), [at.put(node.right, new)]


def more(node: Any, at: Spot) -> Iterator[Found]:
    """Something that is missing at scores: a scale, a mask, a softmax."""
    shape = at.shape(node)
    if shape is None or len(shape) < 2 or not at.value(node).is_floating_point():
        return
    if is_product(node) and not is_square(at, node) and len(shape) > 2:
        for width in at.head_width[:1]:
            new = f"{at.safe(node)} / {width} ** 0.5"
            yield 1.5, "scale", ("/",), [at.put(node, new)]
    if not is_square(at, node):
        return
    text, cost = at.safe(node), 1.4 if is_product(node) else 1.65
    for name, layer in at.known.items():
        if isinstance(layer, nn.Dropout):
            new = f"{name}({at.text(node)})"
            yield 1.5, "dropout", (name,), [at.put(node, new)]
    for width in at.head_width[:1]:
        yield cost, "scale", ("/",), [at.put(node, f"{text} / {width} ** 0.5")]
        yield 1.7, "scale", ("*",), [at.put(node, f"{text} * {width} ** 0.5")]
    future = f"{text}.new_ones({text}.shape[-2:]).triu(1).bool()"
    named = [t for t, v in at.known.items() if masking(v, at.T)]
    for mask in (*named, future):
        own = at.known.get(mask)
        word = mask
        if isinstance(own, torch.Tensor):
            if own.shape[-1] > at.T and at.length:
                word += f"[..., :{at.length}, :{at.length}]"
            word += "" if own.dtype == torch.bool else ".bool()"
        new = f"{text}.masked_fill({word}, {INF})"
        yield 1.6 + 0.1 * (mask == future), "mask", ("fill",), [at.put(node, new)]
        if mask != future:
            new = f"{text}.masked_fill(~{word}, {INF})"
            yield 1.7, "mask", ("fill not",), [at.put(node, new)]
    yield (
        cost + 0.05,
        "softmax",
        ("softmax",),
        [at.put(node, f"{text}.softmax(dim=-1)")],
    )
    new = f"{text} / {text}.sum(dim=-1, keepdim=True)"
    yield 1.8, "softmax", ("normal",), [at.put(node, new)]


def is_product(node: ast.AST) -> bool:
    """Whether an expression is itself a product of matrices."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.MatMult)
    names = ("matmul", "bmm", "einsum", "baddbmm")
    return isinstance(node, ast.Call) and called(node) in names


def masking(value: Any, T: int) -> bool:
    """Whether something in scope can serve as a mask over pairs of tokens."""
    if not isinstance(value, torch.Tensor) or value.dim() < 2:
        return False
    square = value.shape[-1] == value.shape[-2] >= T
    return square and value.unique().numel() == 2


# ---------------------------------------------------------------- names and operators


def other_names(node: Any, at: Spot) -> Iterator[Found]:
    """Another name or attribute in scope."""
    if not isinstance(node, ast.Name | ast.Attribute):
        return
    if not isinstance(node.ctx, ast.Load):
        return
    text, value = at.text(node), at.value(node)
    if isinstance(value, MethodType | nn.Module) and isinstance(node, ast.Attribute):
        yield from other_calls(node, value, at)
    lost = at.raised and text in at.missing
    unknown = value is None and (lost or isinstance(at.statement, ast.Return))
    if not (unknown or isinstance(value, KNOWN)) or text == "self":
        return
    for other, instead in at.known.items():
        same = other == text or instead is value
        if same or not (unknown or exchangeable(at, value, instead)):
            continue
        cost = 1.2 if alike(text, other, at) else 1.5
        cost += 0.1 * (
            isinstance(value, nn.Module) and type(value) is not type(instead)
        )
        yield cost, name_kind(value), (other,), [at.put(node, other)]
    if type(value) is int:
        for width in at.head_width[:1]:
            if value != at.D and "//" in width:
                yield 1.4, "scale", ("width",), [at.put(node, width)]


def other_calls(node: ast.Attribute, value: Any, at: Spot) -> Iterator[Found]:
    """Another method of the same object, or one in a layer's place."""
    around = at.program.parents.get(node)
    if not isinstance(around, ast.Call) or around.func is not node:
        return
    method = isinstance(value, MethodType)
    owner = at.value(node.value)
    for part in at.program.parts:
        name = part.node.name
        if hasattr(owner, name) and name[:2] != "__" and name != node.attr:
            new = f"{at.text(node.value)}.{name}"
            if name != "forward":
                yield 1.4, "projection", (name,), [at.put(node, new)]
    for name, layer in at.known.items() if method else ():
        if isinstance(layer, nn.Module):
            yield 1.5, "projection", (name,), [at.put(node, name)]


def name_kind(value: Any) -> str:
    if isinstance(value, nn.Module):
        return "projection"
    if type(value) is int:
        return "split"
    boolean = isinstance(value, torch.Tensor) and value.dtype == torch.bool
    return "mask" if boolean else "scores"


def alike(one: str, other: str, at: Spot) -> bool:
    """Whether two names are given their values by statements of the same form."""
    forms = at.part_forms
    return bool(forms.get(one)) and forms.get(one) == forms.get(other)


def exchangeable(at: Spot, value: Any, other: Any) -> bool:
    if isinstance(value, torch.Tensor):
        if not isinstance(other, torch.Tensor) or other.dtype != value.dtype:
            return False
        if at.raised:
            return True
        return other.dim() == value.dim() and not (
            other.shape == value.shape and torch.equal(other, value)
        )
    if isinstance(value, nn.Module):
        return isinstance(other, nn.Module) and other is not at.scope.get("self")
    if isinstance(value, list | tuple):
        return type(other) is type(value) and len(other) == len(value)
    return type(other) is type(value) is int and other != value


def letters(node: Any, at: Spot) -> Iterator[Found]:
    """Other letters in an einsum."""
    if not isinstance(node, ast.Call) or "einsum" not in called(node):
        return
    for argument in node.args[:1]:
        text = getattr(argument, "value", None)
        if not isinstance(text, str) or "->" not in text:
            continue
        for cost, new in equations(text):
            yield cost, moved(at, node), (new,), [at.put(argument, repr(new))]


def equations(text: str) -> Iterator[tuple[float, str]]:
    """An equation with one letter changed, or one term in another order."""
    terms = re.findall(r"[a-zA-Z]+", text)
    gaps = re.split(r"[a-zA-Z]+", text)
    known = sorted(set("".join(terms)))
    for n, term in enumerate(terms):
        news = [
            (1.0, term[:i] + c + term[i + 1 :])
            for i, c in itertools.product(range(len(term)), known)
            if c != term[i]
        ]
        news += [
            (1.1, "".join(p))
            for p in itertools.permutations(term)
            if "".join(p) != term and len(term) <= 4
        ]
        for cost, new in news:
            if len(set(new)) == len(new):
                parts = [*terms[:n], new, *terms[n + 1 :]]
                whole_ = [
                    x for pair in itertools.zip_longest(gaps, parts) for x in pair
                ]
                yield cost, "".join(x for x in whole_ if x)


def operators(node: Any, at: Spot) -> Iterator[Found]:
    """Another operator; the operands exchanged."""
    if not isinstance(node, ast.BinOp) or type(node.op) not in OPERATORS:
        return
    sign, others = OPERATORS[type(node.op)]
    left, right = node.left, node.right
    kind = "scale" if not is_square(at, right) else "mask"
    for a, b in ((left, right), (right, left)) if "*" in sign else ():
        if is_square(at, a) and at.shape(b) is not None and few(at.value(b)):
            new = f"{at.safe(a)}.masked_fill({at.safe(b)} == 0, {INF})"
            yield 1.3, "mask", ("fill",), [at.put(node, new)]
    for other in others.split():
        first, start, last_line, end = place = between(left, right)
        if first == last_line:
            gap = at.program.lines[first - 1].encode()[start:end].decode()
            yield 1.0, kind, (other,), [(place, gap.replace(sign, other, 1))]
    if isinstance(node.op, ast.MatMult | ast.Div | ast.Sub | ast.FloorDiv):
        turned = [at.put(left, at.safe(right)), at.put(right, at.safe(left))]
        yield 1.2, "scores", ("turned",), turned


def few(value: torch.Tensor) -> bool:
    """Whether a tensor has two numbers only, as masks have."""
    return value.dim() > 1 and value.unique().numel() == 2


def operands(node: Any, at: Spot) -> Iterator[Found]:
    """Two arguments of a call exchanged."""
    row = node.args if isinstance(node, ast.Call) else getattr(node, "elts", ())
    if 2 <= len(row) <= 4 and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        for a, b in itertools.combinations(row, 2):
            alike_ = type(at.value(a)) is type(at.value(b)) or at.raised
            if alike_ and at.text(a) != at.text(b):
                new = [at.put(a, at.text(b)), at.put(b, at.text(a))]
                yield 1.2, moved(at, node), (at.text(a),), new


def indices(node: Any, at: Spot) -> Iterator[Found]:
    """Another index or bound."""
    if not isinstance(node, ast.Subscript):
        return
    inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    for n, part in enumerate(inner):
        number = whole(part)
        if number is not None:
            for other in range(-1, 4):
                if other != number:
                    yield 1.0, moved(at, node), (n, other), [at.put(part, str(other))]
        if isinstance(part, ast.Slice) and part.upper is not None:
            upper = at.value(part.upper)
            for word in at.sizes(at.T)[:2]:
                if upper != at.T and type(upper) is int:
                    yield 1.0, "mask", (n, word), [at.put(part.upper, word)]
    if isinstance(node.slice, ast.Constant | ast.Name | ast.Tuple):
        yield 1.4, "mask", ("whole",), [at.put(node, at.text(node.value))]


# ---------------------------------------------------------------- calls and statements


def flags(node: Any, at: Spot) -> Iterator[Found]:
    """A flag the other way round, an argument less or more."""
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield 1.0, "mask", ("flag",), [at.put(node, str(not node.value))]
    if not isinstance(node, ast.Call):
        return
    for keyword in node.keywords:
        if keyword.arg and not isinstance(keyword.value, ast.Constant):
            yield 1.3, "mask", (keyword.arg,), [at.put(keyword.value, "None")]
        if keyword.arg == "dropout_p":
            new = f"{at.text(keyword.value)} if self.training else 0.0"
            yield 1.2, "dropout", ("eval",), [at.put(keyword.value, new)]


def arguments(node: Any, at: Spot) -> Iterator[Found]:
    """An argument that is missing in a call of PyTorch's own attention or dropout."""
    if not isinstance(node, ast.Call):
        return
    name, given = called(node), {k.arg for k in node.keywords}
    if "scaled_dot_product" in name:
        for extra in ("is_causal=True", *(f"scale={w} ** -0.5" for w in at.head_width)):
            if extra.split("=")[0] not in given:
                yield 1.2, "mask", (extra,), [last(node, extra)]
    if name == "dropout" and "training" not in given and "self" in at.scope:
        yield 1.1, "dropout", ("eval",), [last(node, "training=self.training")]
    if name == "MultiheadAttention" and "batch_first" not in given:
        yield 1.0, "constructor", ("batch_first",), [last(node, "batch_first=True")]
    fused = isinstance(at.value(node.func), nn.MultiheadAttention)
    if fused and at.length and node.args:
        size, of = f"{at.length}, {at.length}", at.safe(node.args[0])
        future = f"attn_mask={of}.new_ones({size}).triu(1).bool()"
        if "attn_mask" not in given:
            yield 1.2, "mask", ("attn_mask",), [last(node, future)]


def conditions(node: Any, at: Spot) -> Iterator[Found]:
    """A condition the other way round, or always so."""
    if not isinstance(node, ast.If | ast.IfExp):
        return
    test = node.test
    yield 1.3, "mask", ("not",), [at.put(test, f"not ({at.text(test)})")]
    for always in ("True", "False"):
        yield 1.4, "mask", (always,), [at.put(test, always)]


def statements(node: Any, at: Spot) -> Iterator[Found]:
    """A result that is kept, a statement that is left out, what is returned."""
    if node is not at.statement:
        return
    text = at.text(node)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        kind = call_kind(node.value, at)
        for inner in (root_of(node.value), *node.value.args):
            if isinstance(inner, ast.Name) and at.shape(inner) is not None:
                yield 0.9, kind, ("kept",), [at.put(node, f"{at.text(inner)} = {text}")]
        for name in at.missing if at.value(node.value) is not None else ():
            yield 0.9, kind, ("named",), [at.put(node, f"{name} = {text}")]
    if isinstance(node, ast.Expr | ast.Assign | ast.AugAssign):
        yield 1.5, "output", ("pass",), [at.put(node, "pass")]
    if isinstance(node, ast.AugAssign) and type(node.op) in OPERATORS:
        for other in OPERATORS[type(node.op)][1].split():
            new = f"{at.text(node.target)} {other}= {at.text(node.value)}"
            yield 1.0, "mask", (other,), [at.put(node, new)]
    value = getattr(node, "value", None)
    if value is not None and not isinstance(node, ast.Expr):
        yield from through_layers(value, at)
    for call in own_nodes(node):
        several = isinstance(call, ast.Call) and isinstance(at.value(call), tuple)
        if several and len(at.value(call)) > 1:
            yield 1.1, "output", ("first",), [at.put(call, f"{at.text(call)}[0]")]


def root_of(node: ast.expr) -> ast.expr:
    """What a chain of calls and attributes begins with."""
    while isinstance(node, ast.Call | ast.Attribute | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node


def through_layers(value: ast.expr, at: Spot) -> Iterator[Found]:
    """A layer of the module that is not called in this function, called here."""
    first = value.elts[0] if isinstance(value, ast.Tuple) and value.elts else value
    shape, source = at.shape(first), ast.unparse(at.part.node)
    if shape is None or len(shape) < 2:
        return
    for name, layer in at.known.items():
        unused = isinstance(layer, nn.Linear) and f"{name}(" not in source
        if unused and layer.in_features == shape[-1]:
            new = f"{name}({at.text(first)})"
            yield 1.3, "output", (name,), [at.put(first, new)]
        if isinstance(layer, torch.Tensor) and layer.shape == shape and len(shape) == 3:
            new = f"{name} + {at.safe(first)}"
            yield 1.5, "residual", (name,), [at.put(first, new)]


def siblings(node: Any, at: Spot) -> Iterator[Found]:
    """A statement written like the one for another role."""
    if node is not at.statement or not isinstance(node, ast.Assign):
        return
    target = node.targets[0]
    for other in ast.walk(at.part.node):
        if not isinstance(other, ast.Assign) or other is node:
            continue
        near = abs(other.lineno - node.lineno) <= 8
        if not near or type(other.targets[0]) is not type(target):
            continue
        theirs, own = leaves(other.value), leaves(node.value)
        text = ast.unparse(other.value)
        swaps = [(t, o) for t in theirs for o in own if t != o and t not in own]
        for t, o in swaps:
            new = re.sub(rf"(?<![\w.]){re.escape(t)}(?!\w)", o, text)
            if new != at.text(node.value) and not grows(at, node.value, new):
                yield 1.4, moved(at, node.value), (t, o), [at.put(node.value, new)]
        if "self." in ast.unparse(target) and text != ast.unparse(node.value):
            yield 1.3, "constructor", ("copied",), [at.put(node.value, text)]


def grows(at: Spot, node: ast.AST, new: str) -> bool:
    """Whether an expression makes a tensor of a much larger size than another."""
    own, value = at.value(node), at.evaluate(new)
    if not isinstance(own, torch.Tensor) or not isinstance(value, torch.Tensor):
        return False
    return value.numel() > 64 * max(own.numel(), 64)


def leaves(node: ast.AST) -> list[str]:
    """The names and attributes in an expression."""
    found = [
        ast.unparse(n)
        for n in ast.walk(node)
        if isinstance(n, ast.Name | ast.Attribute) and isinstance(n.ctx, ast.Load)
    ]
    return [
        text for text in dict.fromkeys(found) if text not in ("self", "torch", "nn")
    ]


def layers_made(node: Any, at: Spot) -> Iterator[Found]:
    """A layer of other sizes, in the constructor."""
    if not isinstance(node, ast.Call) or called(node) not in ("Linear", "Parameter"):
        return
    numbers = {t: v for t, v in at.known.items() if type(v) is int and v > 1}
    widest = max(numbers.values(), default=0)
    words = [*numbers, *(f"{n} * {a}" for n in (2, 3) for a in numbers)]
    for (a, m), (b, n) in itertools.combinations(numbers.items(), 2):
        if m * n <= widest * 3:
            words.append(f"{a} * {b}")
    for argument in node.args[:2]:
        for word in words:
            now = at.value(argument)
            if type(now) is int and at.evaluate(word) != now:
                yield (
                    1.2 + 0.2 * ("*" in word),
                    "constructor",
                    (word,),
                    [at.put(argument, word)],
                )


RULES: tuple[Rule, ...] = (
    other_axes,
    sizes_in_another_order,
    moved_first,
    axes_exchanged,
    heads_joined,
    left_out,
    twins,
    masks,
    fills,
    later_rows,
    scales,
    more,
    other_names,
    letters,
    operators,
    operands,
    indices,
    flags,
    arguments,
    conditions,
    statements,
    siblings,
    layers_made,
)


# ---------------------------------------------------------------- all of them


def own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """A statement's nodes, without those of the statements in it."""
    todo: list[ast.AST] = [statement]
    while todo:
        node = todo.pop()
        yield node
        todo += [c for c in ast.iter_child_nodes(node) if not isinstance(c, ast.stmt)]


def spots(
    program: Program, seen: Seen, raised: int | None, T: int, D: int
) -> Iterator[Spot]:
    """The statements that ran, each with what was in scope."""
    for part in program.parts:
        for node in ast.walk(part.node):
            if not isinstance(node, ast.stmt) or node is part.node:
                continue
            ends = node.body[0].lineno - 1 if hasattr(node, "body") else node.end_lineno
            lines = [n for n in range(node.lineno, (ends or 0) + 1) if n in seen.scopes]
            guard = isinstance(node, ast.Assert | ast.Raise)
            if lines and not guard and not isinstance(node, ast.FunctionDef):
                scope, names = seen.scopes[lines[0]], seen.names[lines[0]]
                yield Spot(program, part, node, scope, names, raised in lines, T, D)


def edits(spot: Spot) -> Iterator[Edit]:
    """Every change of one statement that the grammar knows."""
    texts = set()
    for place, node in enumerate(own_nodes(spot.statement)):
        if not isinstance(node, ast.expr | ast.stmt):
            continue
        for rule in RULES:
            for cost, kind, which, puts in rule(node, spot):
                key = tuple(puts)
                if key not in texts:
                    texts.add(key)
                    like = form(spot.statement), place, rule.__name__, which
                    yield Edit(cost, kind, key, like)
