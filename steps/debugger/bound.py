"""The line that bound a name to the wrong tensor, where a product then reads that name.

The numbers say that a product reads, say, the keys where the values belong. Each name
is followed back from there, through assignments and into the one call of a helper, to
the line where the tensor of one role got the name of another.
"""

import ast
from collections.abc import Iterator

from steps.debugger.case import Case
from steps.debugger.file import File
from steps.debugger.roles import role_in
from steps.debugger.run import Node
from steps.walk.recorder import tensors_in
from steps.walk.source import Place, span

Function = ast.FunctionDef | ast.AsyncFunctionDef
Bound = tuple[ast.AST, ast.expr]  # the statement or call that bound a name, what to
FUSED = ("queries", "keys", "values")
LIBRARIES = ("torch", "F", "nn", "th")
LONGEST = 20  # names followed back, one from the other


def binding(case: Case, fault: Node) -> Place | None:
    """Where the operand of `fault` that has the wrong role got its name."""
    found, place = wrong_operand(case, fault), fault.entry.place
    call = at_place(case.file, place)
    if call is None or found is None:
        return None
    at, holds = found
    operands = operands_of(call)
    name = root(operands[at]) if at < len(operands) else None
    role = role_in(name or "")
    if role is None or role == holds:
        return None  # the name is right about what it holds: the product is not
    ran = {node.line for node in case.run.nodes}
    for statement, source in trail(case.file.tree, operands[at], place.line, ran):
        if calls_layer(source):
            return None
        if role_in(root(source) or "") != role:
            return case.file.place(statement)
    return None


def alias(file: File, place: Place) -> Place | None:
    """The assignment that gave what is read at a place a second name, V = x."""
    node = at_place(file, place)
    if node is None:
        return None
    for statement, source in trail(file.tree, node, place.line, set()):
        if isinstance(statement, ast.Assign) and isinstance(source, ast.Name):
            return file.place(statement)
    return None


def given(file: File, name: str, at: Place) -> Place | None:
    """Where a class is made, if what its constructor keeps there is an argument."""
    made = kept = None
    nodes = list(ast.walk(file.tree))
    for node in nodes:
        if isinstance(node, ast.ClassDef) and node.name == name:
            made = next((f for f in node.body if is_init(f)), None)
        if kept is None and isinstance(node, ast.Assign) and node.lineno == at.line:
            kept = node.value
    calls = [node for node in nodes if called(node) == name]
    if not isinstance(made, Function) or not isinstance(kept, ast.Name):
        return None
    if kept.id not in parameters_of(made) or len(calls) != 1:
        return None
    value = argument(calls[0], made, kept.id)
    # a name passed on says nothing; an expression is where the number is made
    bare = value is None or isinstance(value, ast.Name)
    return None if bare or value is None else file.place(value)


def is_init(node: ast.stmt) -> bool:
    return isinstance(node, Function) and node.name == "__init__"


def called(node: ast.AST) -> str | None:
    """The name of what a call calls, f(...)."""
    func = node.func if isinstance(node, ast.Call) else None
    return func.id if isinstance(func, ast.Name) else None


# ---------------------------------------------------------------- the product


def wrong_operand(case: Case, fault: Node) -> tuple[int, str] | None:
    """Which operand of a product, counted from 0, has another role than it should, and
    which it has."""
    call = fault.entry.call
    if call is None:
        return None
    nodes = [case.run.node_of(tensor) for tensor in tensors_in((call[1], call[2]))]
    labels = [case.labels[node] for node in nodes if node in case.labels]
    names = [label.stage.name.split(",")[0] for label in labels]
    wrong = odd_one(names)
    if wrong is None or names[wrong] not in FUSED:
        return None
    return wrong, names[wrong][0]


def odd_one(names: list[str]) -> int | None:
    """Which of the stages that a product reads should be another."""
    if len(names) == 3 and set(names) <= set(FUSED):
        odd = [at for at, name in enumerate(names) if name != FUSED[at]]
        return odd[0] if len(odd) == 1 else None
    if len(names) == 2 and "weights" in names:
        return 1 - names.index("weights")
    if names == ["queries", "queries"]:
        return 1
    if names == ["keys", "keys"]:
        return 0
    if len(names) == 2 and "values" in names and len(set(names)) == 2:
        return names.index("values")
    return None


def at_place(file: File, place: Place) -> ast.expr | None:
    """The product or call at a place of the source."""
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Call | ast.BinOp) and span(node) == tuple(place[1:]):
            return node
    return None


def operands_of(node: ast.expr) -> list[ast.expr]:
    """The tensors of a product, as written: a @ b, a.matmul(b), f(a, b), f("..", a)."""
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if not isinstance(node, ast.Call):
        return []
    flat: list[ast.expr] = []
    for value in (*node.args, *(k.value for k in node.keywords)):
        flat += value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
    flat = [value for value in flat if not isinstance(value, ast.Constant)]
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    return flat if owner is None or root(owner) in LIBRARIES else [owner, *flat]


# ---------------------------------------------------------------- names


def root(node: ast.expr | None) -> str | None:
    """The name that a chain of attributes, calls and indices starts from."""
    while node is not None and not isinstance(node, ast.Name):
        if isinstance(node, ast.Call):
            inner = node.func
            if isinstance(inner, ast.Name) or root(inner) in ("self", "torch", "F"):
                node = next((a for a in node.args if has_name(a)), None)
            else:
                node = inner
        elif isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
            node = node.value
        elif isinstance(node, ast.BinOp):
            node = node.left
        else:
            return None
    return node.id if node is not None else None


def has_name(node: ast.expr) -> bool:
    """Whether a chain starts from a name other than self."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return isinstance(node, ast.Name) and node.id != "self"


def calls_layer(node: ast.expr) -> bool:
    """Whether self.key(x) or the like is in it: a role's own layer."""
    return any(
        isinstance(part, ast.Call)
        and isinstance(part.func, ast.Attribute)
        and root(part.func) == "self"
        and role_in(part.func.attr) is not None
        for part in ast.walk(node)
    )


def trail(
    tree: ast.Module, expression: ast.expr, line: int, ran: set[int]
) -> Iterator[Bound]:
    """What bound the name that an expression reads, and so on back.

    ran: the lines that did something.
    """
    functions = [n for n in ast.walk(tree) if isinstance(n, Function)]
    for _ in range(LONGEST):
        name = root(expression)
        inside = [f for f in functions if f.lineno <= line <= (f.end_lineno or 0)]
        if name is None or not inside:
            return
        function = max(inside, key=lambda f: f.lineno)
        found = last_binding(function, name, line, ran)
        found = found or passed(tree, functions, function, name)
        if found is None:
            return
        statement, expression = found
        line = getattr(statement, "lineno", line)
        yield statement, expression


def last_binding(
    function: Function, name: str, before: int, ran: set[int]
) -> Bound | None:
    """The last assignment to a name before a line."""
    branches = {
        inner
        for node in function.body
        if not isinstance(node, ast.Assign)
        for inner in ast.walk(node)
    }
    last: tuple[ast.Assign, ast.expr] | None = None
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign) or (node.end_lineno or 0) >= before:
            continue
        lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if node in branches and ran.isdisjoint(lines):
            continue
        value = bound_to(node, name)
        if value is not None and (last is None or node.lineno > last[0].lineno):
            last = node, value
    return last


def bound_to(node: ast.Assign, name: str) -> ast.expr | None:
    """What an assignment binds a name to."""
    for target in node.targets:
        if isinstance(target, ast.Name) and target.id == name:
            return node.value
        names = [root(e) for e in target.elts] if isinstance(target, ast.Tuple) else []
        if name in names:
            values = node.value.elts if isinstance(node.value, ast.Tuple) else []
            return (
                values[names.index(name)] if len(values) == len(names) else node.value
            )
    return None


def passed(
    tree: ast.Module, functions: list[Function], function: Function, name: str
) -> Bound | None:
    """What the one call of a helper gives for its parameter."""
    own = function.name
    if name not in (a.arg for a in function.args.args) or own in (
        "forward",
        "__call__",
    ):
        return None
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and own in (called(node), getattr(node.func, "attr", None))
    ]
    if len(calls) != 1 or sum(f.name == own for f in functions) != 1:
        return None
    value = argument(calls[0], function, name)
    return (calls[0], value) if value is not None else None


def parameters_of(function: Function) -> list[str]:
    """The parameters by position, without self."""
    names = [a.arg for a in function.args.args]
    return names[1:] if names[:1] == ["self"] else names


def argument(call: ast.AST, function: Function, name: str) -> ast.expr | None:
    """What a call gives for a parameter."""
    if not isinstance(call, ast.Call):
        return None
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    at = parameters_of(function).index(name)
    starred = any(isinstance(a, ast.Starred) for a in call.args)
    return call.args[at] if at < len(call.args) and not starred else None
