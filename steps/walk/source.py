"""A source file read once: which statement and which name belong to a place in it."""

import ast
import linecache
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from types import TracebackType
from typing import Any, NamedTuple

# A name alone: no part of a longer one, no attribute, call or keyword.
LONE_NAME = re.compile(r"(?<![\w.\"'])(?:self\.)?[A-Za-z_]\w*(?![\w.(\[=\"'])")
AXES_COMMENT = re.compile(r"\s*#\s*(?:weight )?\(([^()]*)\)\s*$")


class Place(NamedTuple):
    """Where in the source a call stands; lines from 1, columns in bytes from 0."""

    file: str
    line: int
    end_line: int
    column: int | None
    end_column: int | None


class Statement(NamedTuple):
    """A statement of a source file and the names that it gives."""

    node: ast.stmt
    text: str
    axes: tuple[str, ...] | None  # from its comment, such as  # (B, T, H*D)


class Source:
    """A source file read once: which statement and which name belong to a place."""

    def __init__(self, file: str, lines: list[str]) -> None:
        self.file = file
        self.lines = lines
        self.tree = ast.parse("".join(lines))
        self._functions = {
            node.name: node
            for node in self.tree.body
            if isinstance(node, ast.FunctionDef)
        }
        self._texts: dict[tuple[int, ...], str] = {}
        self._made: dict[str, list[str]] = {}
        self._read: dict[int, Statement | None] = {}

    @classmethod
    def of(cls, file: str) -> "Source":
        """The source of a file as it is now; the same text is parsed only once."""
        linecache.checkcache(file)
        lines = linecache.getlines(file)
        key = (file, "".join(lines))
        if key not in SOURCES:
            SOURCES[key] = cls(file, lines)
        return SOURCES[key]

    def doc(self, function: str = "") -> str:
        """A docstring as it stands in the file: python -OO keeps none in memory."""
        node = self._functions[function] if function else self.tree
        return ast.get_docstring(node) or ""

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """The node around each node."""
        return {
            child: node
            for node in ast.walk(self.tree)
            for child in ast.iter_child_nodes(node)
        }

    @cached_property
    def _places(self) -> tuple[dict[tuple[int, ...], list[str]], dict[int, ast.stmt]]:
        """Names by the place of what they are given, and statements by line."""
        self._names: dict[tuple[int, ...], list[str]] = {}
        statements: dict[int, ast.stmt] = {}
        self._functions_around: dict[ast.stmt, str] = {}
        self._enter(self.tree.body, "", statements)
        if any(":=" in line for line in self.lines):
            for node in ast.walk(self.tree):
                if isinstance(node, ast.NamedExpr):
                    self._pair(node.target, node.value)
        return self._names, statements

    def _enter(
        self, body: list, function: str, statements: dict[int, ast.stmt]
    ) -> None:
        """Statements from the outside in, so that a line's innermost one stays."""
        for node in body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                self._pair(node.targets[0], node.value)
            elif isinstance(node, ast.AnnAssign) and node.value:
                self._pair(node.target, node.value)
            elif isinstance(node, ast.AugAssign):
                self._names[span(node)] = [ast.unparse(node.target)]
            if isinstance(node, ast.stmt):
                self._functions_around[node] = function
                for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                    statements[line] = node
            within = node.name if isinstance(node, ast.FunctionDef) else function
            for part in ("body", "orelse", "finalbody", "handlers", "cases"):
                self._enter(getattr(node, part, []), within, statements)

    def _pair(self, target: ast.expr, value: ast.expr) -> None:
        """Give the value's place the target's name; a tuple's parts, each its own."""
        if isinstance(target, ast.Tuple):
            names = [ast.unparse(part) for part in target.elts]
            if isinstance(value, ast.Tuple) and len(value.elts) == len(names):
                for part, part_value in zip(target.elts, value.elts, strict=True):
                    self._pair(part, part_value)
            elif isinstance(value, ast.GeneratorExp | ast.ListComp):
                self._names[span(value.elt)] = names
            else:
                self._names[span(value)] = names
        elif isinstance(target, ast.Name | ast.Attribute):
            self._names[span(value)] = [ast.unparse(target)]

    def names(self, place: Place) -> list[str]:
        """The names that the result of the call at `place` is given; often none."""
        if place.column is not None:
            return self._places[0].get(tuple(place[1:]), [])  # type: ignore[arg-type]
        node = self._places[1].get(place.line)  # before Python 3.11: by line
        value = getattr(node, "value", None)
        if value is None or isinstance(value, ast.Dict | ast.DictComp):
            return []  # a call made in a dict is not the dict
        return self._places[0].get(span(value), [])

    def statement(self, place: Place) -> Statement | None:
        """The innermost statement around `place`."""
        if place.line not in self._read:
            node = self._places[1].get(place.line)
            self._read[place.line] = self._statement(node, place.line) if node else None
        return self._read[place.line]

    def _statement(self, node: ast.stmt, line: int) -> Statement:
        first, last = node.lineno, node.end_lineno or node.lineno
        comment = AXES_COMMENT.search(self.lines[last - 1])
        if comment is None and first > 1:
            comment = AXES_COMMENT.fullmatch(self.lines[self._above(node)].rstrip())
        axes = None
        if comment and isinstance(node, ast.Assign | ast.AnnAssign | ast.Return):
            axes = tuple(part.strip() for part in comment[1].split(",") if part.strip())
        if isinstance(node, ast.For | ast.With | ast.If | ast.While | ast.FunctionDef):
            head = re.sub(r"\s+#.*$", "", self.lines[line - 1].strip())
            return Statement(node, head, None)
        text = self.text(span(node))
        if isinstance(node, ast.Assign) and node.lineno != node.end_lineno:
            # without parentheses that are only there to break the line
            parts = [self.text(span(part)) for part in (*node.targets, node.value)]
            text = " = ".join(parts)
        return Statement(node, text, axes)

    def _above(self, node: ast.stmt) -> int:
        """The index of the line above a statement and above all that go with it.

        One comment over some statements holds for those that make the same call:
        `queries.view(b, 4)`, `keys.view(b, 4)`.
        """
        at, call = node.lineno - 2, method_call(node)
        while call and (before := self._places[1].get(at + 1)):
            if method_call(before) != call or before.lineno != at + 1:
                break
            at -= 1
        return at

    def assignment(self, function: str, name: str) -> Place | None:
        """Where `function` assigns `name`."""
        names, statements = self._places
        for at, given in names.items():
            if (
                name in given
                and self._functions_around.get(statements[at[0]]) == function
            ):
                return Place(self.file, *at)
        return None

    @cached_property
    def axes(self) -> dict[str, tuple[str, ...]]:
        """The axes that comments give to what `step` and the other functions make."""
        found = {}
        for function in self.functions():
            for name in self.made_by(function):
                place = self.assignment(function, name)
                statement = self.statement(place) if place else None
                if statement and statement.axes is not None:
                    found[name] = statement.axes
        return found

    def made_by(self, function: str) -> list[str]:
        """The names that a function of this file assigns, in order."""
        if function not in self._made:
            targets = [
                target
                for node in ast.walk(self._functions[function])
                if isinstance(node, ast.Assign)
                for target in node.targets
            ]
            targets.sort(key=lambda target: (target.lineno, target.col_offset))
            names = (n for t in targets for n in getattr(t, "elts", [t]))
            kept = (n.id for n in names if isinstance(n, ast.Name))
            self._made[function] = list(dict.fromkeys(kept))
        return self._made[function]

    def statements(self, function: str) -> Iterator[tuple[int, Statement]]:
        """How deep each statement of a function stands, and it; of a block, its head.

        Without the docstring and what is returned.
        """

        def within(body: list[ast.stmt], depth: int) -> Iterator:
            for node in body:
                said = isinstance(node, ast.Expr) and isinstance(
                    node.value, ast.Constant
                )
                if not said and not isinstance(node, ast.Return):
                    yield depth, self._statement(node, node.lineno)
                    yield from within(getattr(node, "body", []), depth + 1)

        yield from within(self._functions[function].body, 0)

    def functions(self) -> list[str]:
        """The functions at the top of this file."""
        return list(self._functions)

    def text(self, at: tuple[int, ...]) -> str:
        """The source text of a span, its lines joined into one; "" without a file."""
        if not self.lines:
            return ""
        if at not in self._texts:
            line, end_line, column, end_column = at
            lines = [text.encode() for text in self.lines[line - 1 : end_line]]
            lines[-1] = lines[-1][:end_column]
            lines[0] = lines[0][column:]
            parts = [re.sub(r"\s+#.*$", "", part.decode()).strip() for part in lines]
            text = " ".join(parts)
            self._texts[at] = re.sub(r"(?<=[(\[{]) |,? (?=[)\]}])", "", text)
        return self._texts[at]


def fill_in(text: str, numbers: Mapping[str, Any]) -> str:
    """The statement's right side with this run's sizes in place of their names."""
    left, equals, right = text.partition(" = ")
    if not equals:
        left, right = "", text

    def number(match: re.Match) -> str:
        name = match[0].removeprefix("self.")
        return str(numbers[name]) if name in numbers else match[0]

    right = re.sub(LONE_NAME, number, right)
    right = re.sub(r"\b(\d+) \* (\d+)\b", lambda m: str(int(m[1]) * int(m[2])), right)
    return left + equals + right


def method_call(node: ast.stmt) -> tuple[str, ...]:
    """The method that a statement gives its name to, and the arguments; or ()."""
    call = getattr(node, "value", None)
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return ()
    return (call.func.attr, *map(ast.unparse, (*call.args, *call.keywords)))


def span(node: ast.AST) -> tuple[int, ...]:
    """(line, end line, column, end column), in the order of `Place`."""
    return (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)  # type: ignore[attr-defined]


def trace_of(error: BaseException, file: str) -> TracebackType | None:
    """The innermost place of `file` on the way to an error."""
    found, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            found = trace
        trace = trace.tb_next
    return found


SOURCES: dict[tuple[str, str], Source] = {}
