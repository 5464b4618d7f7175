"""The reader's file: where in it something is made, and a fault at that place."""

import ast
import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

from steps.debugger.result import Diagnosis
from steps.debugger.run import Node
from steps.walk.source import Place, Source, span

NO_GRADIENTS = re.compile(r"no_grad|inference_mode|set_grad_enabled")


class File:
    """The reader's source; where it cannot be had, nothing is found in it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.source: Source | None = None
        with contextlib.suppress(OSError, SyntaxError, ValueError):
            self.source = Source.of(path)

    def fault(
        self,
        at: Node | Place | None,
        kind: str,
        message: str,
        got: str = "",
        seen_at: int | None = None,
        node: Node | None = None,
    ) -> Diagnosis:
        """A fault at an operation or another place.

        got: what was made.
        seen_at: the line where it shows, if that is another one.
        node: the operation that is marked, if the place is another's.
        """
        place = at.entry.place if isinstance(at, Node) else at
        line = place.line if place is not None else None
        column = one_based(place.column) if place is not None else None
        if seen_at not in (None, line):
            message += f" It shows at line {seen_at}."
        return Diagnosis(
            self.path,
            "fault",
            line,
            column,
            self.statement(place),
            kind,
            got=got,
            message=message,
            seen_at=seen_at or line,
            node=at if node is None and isinstance(at, Node) else node,
        )

    def statement(self, place: Place | None) -> str:
        """The text of the statement at a place, or of the line where none is."""
        if self.source is None or place is None:
            return ""
        statement = self.source.statement(place)
        text = statement.text if statement else ""
        decorator = text.startswith(("def ", "class ", "async "))
        return self.source.lines[place.line - 1].strip() if decorator else text

    @property
    def tree(self) -> ast.Module:
        """The syntax of the source."""
        return self.source.tree if self.source is not None else ast.Module([], [])

    def functions(self, owner: Any) -> Iterator[ast.FunctionDef]:
        """The methods of an object's class, then of the classes it inherits from."""
        for base in type(owner).__mro__:
            for node in ast.walk(self.tree):
                if isinstance(node, ast.ClassDef) and node.name == base.__name__:
                    yield from (f for f in node.body if isinstance(f, ast.FunctionDef))

    def place(self, node: ast.AST) -> Place:
        return Place(self.path, *span(node))

    def constructor(
        self, owner: Any, attribute: str, local: bool = True
    ) -> Place | None:
        """Where an object is given an attribute, or the variable that it comes from."""
        for function in self.functions(owner):
            for node in ast.walk(function) if function.name != "forward" else ():
                value = assigned(node, attribute)
                if value is not None:
                    source = assignment(function, value, node) if local else None
                    return self.place(source or self.returned(value) or node)
        return None

    def returned(self, value: ast.expr) -> ast.Return | None:
        """What a function of the file returns, where a value is a call of it."""
        called = called_name(value)
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef) and node.name == called:
                found = [
                    part for part in ast.walk(node) if isinstance(part, ast.Return)
                ]
                return found[-1] if found else None
        return None

    def definition(self, owner: Any, name: str) -> Place | None:
        """Where a method is defined."""
        found = (f for f in self.functions(owner) if f.name == name)
        return next(map(self.place, found), None)

    def without_gradients(self, line: int) -> Place | None:
        """The innermost no_grad around a line, of a `with` or a decorator."""
        found = None
        for node in ast.walk(self.tree):
            if isinstance(node, ast.With):
                heads = [item.context_expr for item in node.items]
            elif isinstance(node, ast.FunctionDef):
                heads = node.decorator_list
            else:
                continue
            if heads and heads[0].lineno <= line <= (node.end_lineno or 0):
                switches = [h for h in heads if NO_GRADIENTS.search(ast.unparse(h))]
                found = self.place(switches[0]) if switches else found
        return found

    def inside(
        self, owner: Any, name: str, holds: Callable[[ast.AST], bool]
    ) -> list[Place]:
        """The places in a method of the syntax for which something holds."""
        for function in self.functions(owner):
            parts = [part for part in ast.walk(function) if holds(part)]
            if function.name == name and parts:
                return [self.place(part) for part in parts]
        return []


def one_based(column: int | None) -> int | None:
    return None if column is None else column + 1


def assigned(node: ast.AST, attribute: str) -> ast.expr | None:
    """The value that a statement stores as self.<attribute>."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                for part, given in parts(target, value):
                    if isinstance(part, ast.Attribute) and part.attr == attribute:
                        return given
        case ast.AnnAssign(target=ast.Attribute(attr=name), value=value):
            return value if name == attribute else None
        case ast.Call(
            func=ast.Attribute(attr="register_buffer" | "register_parameter"),
            args=[ast.Constant(value=name), value, *_],
        ):
            return value if name == attribute else None
    return None


def parts(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """What each part of a target is given."""
    if not isinstance(target, ast.Tuple):
        return [(target, value)]
    whole = [value] * len(target.elts)
    values = value.elts if isinstance(value, ast.Tuple) else whole
    return list(zip(target.elts, values, strict=False))


def called_name(value: ast.expr) -> str | None:
    """The name that a value starts from: of mask.bool() and mask(n) it is mask."""
    while isinstance(value, ast.Call | ast.Attribute):
        value = value.func if isinstance(value, ast.Call) else value.value
    return value.id if isinstance(value, ast.Name) else None


def assignment(
    function: ast.FunctionDef, value: ast.expr, before: Any
) -> ast.AST | None:
    """The last assignment to the local variable that a value is made from."""
    name = called_name(value)
    if name in (None, "self"):
        return None
    found = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and node.lineno <= before.lineno
        for target in node.targets
        if isinstance(target, ast.Name) and target.id == name
    ]
    return max(found, key=lambda node: node.lineno, default=None)
