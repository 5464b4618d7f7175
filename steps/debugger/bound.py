# ruff: noqa: E501 - sentences for the reader are kept whole
"""The line that bound a name to the wrong tensor, where a product then reads that name.

The numbers say that a product reads, say, the keys where the values belong. Each name is
followed back from there, through assignments and into the one call of a helper, to the
line where the tensor of one role got the name of another.
"""

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from steps.debugger.roles import role_in
from steps.debugger.run import Node
from steps.walk.recorder import tensors_in
from steps.walk.source import Place

if TYPE_CHECKING:
    from steps.debugger.examine import Case

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUSED = ("queries", "keys", "values")


def binding(case: "Case", tree: ast.Module | None, fault: Node) -> Place | None:
    """Where the operand of `fault` that has the wrong role got its name."""
    found = wrong_operand(case, fault)
    place = fault.entry.place
    call = at_place(tree, place) if tree is not None and found is not None else None
    if call is None or tree is None or found is None:
        return None
    at, holds = found
    operands = operands_of(call)
    name = root(operands[at]) if at < len(operands) else None
    role = role_in(name or "")
    if role is None or role == holds:
        return None  # the name is right about what it holds: the product is not
    assert case.run is not None
    ran = {node.line for node in case.run.nodes}
    for statement, source in trail(tree, operands[at], place.line, ran):
        other = role_in(root(source) or "")
        if calls_layer(source):
            return None
        if other != role:
            return place_of(statement, place.file)
    return None


def alias(tree: ast.Module | None, place: Place) -> Place | None:
    """The assignment that gave what is read at a place a second name, V = x."""
    node = at_place(tree, place) if tree is not None else None
    if tree is None or node is None:
        return None
    for statement, source in trail(tree, node, place.line, set()):
        if isinstance(statement, ast.Assign) and isinstance(source, ast.Name):
            return place_of(statement, place.file)
    return None


def given(tree: ast.Module, name: str, at: Place) -> Place | None:
    """Where a class is made, if what its constructor keeps at a place is an argument."""
    classes = [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]
    kept = next(
        (
            n
            for n in ast.walk(tree)
            if isinstance(n, ast.Assign) and n.lineno == at.line
        ),
        None,
    )
    cls = next((c for c in classes if c.name == name), None)
    if kept is None or cls is None or not isinstance(kept.value, ast.Name):
        return None
    made = next(
        (f for f in cls.body if isinstance(f, Function) and f.name == "__init__"), None
    )
    calls = [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.Call)
        and isinstance(n.func, ast.Name)
        and n.func.id == name
    ]
    parameters = [a.arg for a in made.args.args][1:] if made is not None else []
    if kept.value.id not in parameters or len(calls) != 1:
        return None
    index = parameters.index(kept.value.id)
    value = next((k.value for k in calls[0].keywords if k.arg == kept.value.id), None)
    if value is None and index < len(calls[0].args):
        value = calls[0].args[index]
    # a name passed on says nothing; an expression is where the number is made
    return (
        None
        if value is None or isinstance(value, ast.Name)
        else place_of(value, at.file)
    )


def wrong_operand(case: "Case", fault: Node) -> tuple[int, str] | None:
    """Which operand of a product, counted from 0, has another role than it should, and
    which it has."""
    judgement = case.judgement
    call = fault.entry.call
    if judgement is None or call is None or case.run is None:
        return None
    names = []
    for tensor in tensors_in((call[1], call[2])):
        node = case.run.node_of(tensor)
        label = judgement.labels.get(node) if node is not None else None
        if label is not None:
            names.append(label.stage.name.split(",")[0])
    wrong: int | None = None
    if len(names) == 3 and set(names) <= set(FUSED):
        odd = [at for at, name in enumerate(names) if name != FUSED[at]]
        wrong = odd[0] if len(odd) == 1 else None
    elif len(names) == 2 and "weights" in names:
        wrong = 1 - names.index("weights")
    elif names == ["queries", "queries"]:
        wrong = 1
    elif names == ["keys", "keys"]:
        wrong = 0
    elif len(names) == 2 and "values" in names and len(set(names)) == 2:
        wrong = names.index("values")
    if wrong is None or names[wrong] not in FUSED:
        return None
    return wrong, names[wrong][0]


def at_place(tree: ast.Module, place: Place) -> ast.expr | None:
    """The expression at a place of the source."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call | ast.BinOp)
            and node.lineno == place.line
            and node.col_offset == place.column
            and node.end_lineno == place.end_line
            and node.end_col_offset == place.end_column
        ):
            return node
    return None


def operands_of(node: ast.expr) -> list[ast.expr]:
    """The tensors of a product, as written: a @ b, a.matmul(b), f(a, b), einsum("..", a, b)."""
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if not isinstance(node, ast.Call):
        return []
    given = [*node.args, *(k.value for k in node.keywords)]
    flat = [
        part
        for argument in given
        for part in (
            argument.elts if isinstance(argument, ast.List | ast.Tuple) else [argument]
        )
        if not isinstance(part, ast.Constant)
    ]
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    module = root(owner) in ("torch", "F", "nn", "th") if owner is not None else True
    return flat if module or owner is None else [owner, *flat]


def root(node: ast.expr | None) -> str | None:
    """The name that a chain of attributes, calls and indices starts from."""
    while node is not None and not isinstance(node, ast.Name):
        if isinstance(node, ast.Call):
            inner = node.func
            names = [a for a in node.args if root_name(a)]
            helper = isinstance(inner, ast.Name) or root(inner) in (
                "self",
                "torch",
                "F",
            )
            node = names[0] if helper and names else None if helper else inner
        elif isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
            node = node.value
        elif isinstance(node, ast.BinOp):
            node = node.left
        else:
            return None
    return node.id if node is not None else None


def root_name(node: ast.expr) -> bool:
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
) -> Iterator[tuple[ast.AST, ast.expr]]:
    """(the statement or call that bound a name, what to), from the product back."""
    functions = [n for n in ast.walk(tree) if isinstance(n, Function)]
    for _ in range(20):
        name = root(expression)
        inside = [f for f in functions if f.lineno <= line <= (f.end_lineno or 0)]
        if name is None or not inside:
            return
        function = max(inside, key=lambda f: f.lineno)
        found = last_binding(function, name, line, ran)
        if found is None:
            found = passed(tree, functions, function, name)
        if found is None:
            return
        statement, expression = found
        line = getattr(statement, "lineno", line)
        yield statement, expression


def last_binding(
    function: Function, name: str, before: int, ran: set[int]
) -> tuple[ast.AST, ast.expr] | None:
    """The last assignment to a name before a line; `ran`: lines that did something."""
    branches = {
        inner
        for node in function.body
        if not isinstance(node, ast.Assign)
        for inner in ast.walk(node)
    }
    found: tuple[ast.AST, ast.expr] | None = None
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign) or (node.end_lineno or 0) >= before:
            continue
        lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if node in branches and ran.isdisjoint(lines):
            continue
        for target in node.targets:
            value: ast.expr = node.value
            if isinstance(target, ast.Tuple):
                names = [root(e) for e in target.elts]
                if name not in names:
                    continue
                if isinstance(value, ast.Tuple) and len(value.elts) == len(names):
                    value = value.elts[names.index(name)]
            elif not (isinstance(target, ast.Name) and target.id == name):
                continue
            if found is None or node.lineno > getattr(found[0], "lineno", 0):
                found = node, value
    return found


def passed(
    tree: ast.Module, functions: list[Function], function: Function, name: str
) -> tuple[ast.AST, ast.expr] | None:
    """What the one call of a helper gives for its parameter."""
    parameters = [a.arg for a in function.args.args]
    if name not in parameters or function.name in ("forward", "__call__"):
        return None
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (
            (isinstance(node.func, ast.Name) and node.func.id == function.name)
            or (
                isinstance(node.func, ast.Attribute) and node.func.attr == function.name
            )
        )
    ]
    if len(calls) != 1 or sum(f.name == function.name for f in functions) != 1:
        return None
    call = calls[0]
    for keyword in call.keywords:
        if keyword.arg == name:
            return call, keyword.value
    if parameters[:1] == ["self"]:
        parameters = parameters[1:]
    at = parameters.index(name)
    if at < len(call.args) and not any(isinstance(a, ast.Starred) for a in call.args):
        return call, call.args[at]
    return None


def place_of(node: ast.AST, file: str) -> Place:
    found = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
    columns = getattr(node, "col_offset", 0), getattr(node, "end_col_offset", 0)
    return Place(file, found[0], found[1], *columns)
