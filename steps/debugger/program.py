"""A reader's file as a program whose lines can be exchanged while it runs."""

import ast
import contextlib
import inspect
import itertools
import linecache
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

# What reaches beyond numbers, and the modules whose functions do not.
OUTWARD = {"open", "exec", "eval", "compile", "input", "__import__", "breakpoint"}
COMPUTING = {
    "torch", "math", "cmath", "numpy", "einops", "random", "copy", "functools",
    "itertools", "operator", "typing", "collections", "dataclasses", "enum", "abc",
    "builtins", "types", "warnings", "time", "string", "logging", "re", "numbers",
    "contextlib",
}  # fmt: skip


@dataclass(eq=False)
class Part:
    """A function of the file that stands in no other function."""

    node: ast.FunctionDef
    owner: str  # the class around it, or ""
    function: FunctionType

    @property
    def lines(self) -> range:
        return range(self.node.lineno, (self.node.end_lineno or 0) + 1)


@dataclass
class Seen:
    """What was in scope at each line when it was first reached."""

    scopes: dict[int, dict[str, Any]] = field(default_factory=dict)
    names: dict[int, Mapping[str, Any]] = field(default_factory=dict)  # the globals


class Program:
    """The functions of a file that live in this process."""

    def __init__(self, path: str, names: Mapping[str, Any]) -> None:
        self.path, self.names = path, names
        self.lines = [line.rstrip("\r\n") for line in linecache.getlines(path)]
        self.tree = ast.parse("\n".join(self.lines))
        self.parents = {
            child: node
            for node in ast.walk(self.tree)
            for child in ast.iter_child_nodes(node)
        }
        living = {
            (f.__code__.co_name, f.__code__.co_firstlineno): f
            for f in functions_of(names)
            if f.__code__.co_filename == path
        }
        self.parts: list[Part] = []
        for node, owner in outer_functions(self.tree, ""):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            function = living.get((node.name, first))
            if function is not None:
                self.parts.append(Part(node, owner, function))

    def reaches_out(self, seen: Seen) -> str:
        """What a function that ran calls or imports that may do more than compute, such
        as os.remove; "" for nothing. With changed lines it might do anything."""
        for part in self.parts:
            if seen.scopes.keys().isdisjoint(part.lines):
                continue
            for node in ast.walk(part.node):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    tops = [alias.name.partition(".")[0] for alias in node.names]
                    if isinstance(node, ast.ImportFrom):
                        tops = [(node.module or "").partition(".")[0]]
                    if not COMPUTING.issuperset(tops):
                        return ast.unparse(node)
                elif isinstance(node, ast.Call):
                    name = root_of(node.func)
                    if name in OUTWARD or self.foreign(name):
                        return ast.unparse(node.func)
        return ""

    def foreign(self, name: str) -> bool:
        """Whether a global name is of a module that may do more than compute."""
        value = self.names.get(name)
        if value is None:
            return False
        own = value.__name__ if isinstance(value, ModuleType) else ""
        home = own or getattr(value, "__module__", None) or ""
        top = home.partition(".")[0]
        return top not in COMPUTING and home != self.names.get("__name__")

    def part_at(self, line: int) -> Part | None:
        """The function that a line belongs to."""
        return next((part for part in self.parts if line in part.lines), None)

    @contextlib.contextmanager
    def changed(self, lines: Mapping[int, str]) -> Iterator[None]:
        """Run inside with these lines (by their numbers) reading otherwise.

        Raises SyntaxError where they are no Python, LookupError where one is no line
        of a function that lives.
        """
        parts = {self.part_at(line) for line in lines}
        codes = []
        for part in parts:
            if part is None:
                raise LookupError
            codes.append((part.function, self.code(part, lines)))
        before = [(function, function.__code__) for function, _ in codes]
        try:
            for function, code in codes:
                function.__code__ = code
            yield
        finally:
            for function, code in before:
                function.__code__ = code

    def code(self, part: Part, lines: Mapping[int, str]) -> CodeType:
        """A function's code, with some lines reading otherwise."""
        rows = [lines.get(n, self.lines[n - 1]) for n in part.lines]
        first = part.node.lineno
        head = f"class {part.owner or 'None_'}:" if part.node.col_offset else ""
        text = "\n" * (first - 2) + head + "\n" * (first > 1) + "\n".join(rows)
        tree = ast.parse(text)
        if not stored(tree) <= stored(part.node):
            raise SyntaxError  # it would change a module, such as torch.nn
        code = compile(tree, self.path, "exec", dont_inherit=True)
        if part.node.col_offset:
            code = inner(code, part.owner or "None_")
        code = inner(code, part.node.name)
        if code.co_freevars != part.function.__code__.co_freevars:
            raise SyntaxError
        return code

    def watch(self, call: Callable[[], Any], seen: Seen) -> Any:
        """What `call` returns, noting what is in scope at each line of the file."""

        def at_line(frame: FrameType, event: str, _: Any) -> Any:
            if event == "line" and frame.f_lineno not in seen.scopes:
                seen.scopes[frame.f_lineno] = dict(frame.f_locals)
                seen.names[frame.f_lineno] = frame.f_globals
            return at_line

        def at_call(frame: FrameType, event: str, _: Any) -> Any:
            return at_line if frame.f_code.co_filename == self.path else None

        before = sys.gettrace()
        sys.settrace(at_call)
        try:
            return call()
        finally:
            sys.settrace(before)


def root_of(node: ast.expr) -> str:
    """The name that an attribute of attributes starts with, or ""."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def stored(tree: ast.AST) -> set[str]:
    """The attributes that are given a value, but for those of self."""
    return {
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if not (isinstance(node.value, ast.Name) and node.value.id == "self")
    }


def inner(code: CodeType, name: str) -> CodeType:
    """The code named so inside another one."""
    found = [c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name]
    if not found:
        raise SyntaxError
    return found[0]


def outer_functions(node: ast.AST, owner: str) -> Iterator[tuple[ast.FunctionDef, str]]:
    """Functions that stand in no other, and the class around each."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            yield child, owner
        elif isinstance(child, ast.ClassDef):
            yield from outer_functions(child, child.name)
        elif isinstance(child, ast.stmt):
            yield from outer_functions(child, owner)


def functions_of(names: Mapping[str, Any]) -> Iterator[FunctionType]:
    """The functions that names stand for, and those of their classes."""
    for value in list(names.values()):
        held = list(vars(value).values()) if isinstance(value, type) else []
        for one in itertools.chain([value], held):
            one = getattr(one, "__func__", None) or getattr(one, "fget", None) or one
            with contextlib.suppress(Exception):
                one = inspect.unwrap(one)
            if isinstance(one, FunctionType):
                yield one
