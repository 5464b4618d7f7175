"""Mutants: a right module of attention_cases/ with one expression changed.

`python tests/mutants.py` makes some of every right module and prints how many of them
the debugger names. Only what plain loops find wrong (loops.py) is a mutant here: what
gives equal numbers is dropped, whatever its text.
"""

import argparse
import ast
import contextlib
import io
import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a script

from apply_repair import applied
from cases import Sample, right_samples, samples
from examined import examined
from loops import fails

from steps.pytorch import torch

# What shows a mutant, and what a repair of it must mend.
WRONG = ("eval", "eval_dropout", "train_dropout", "padding", "cache", "context")

AXES = {
    "transpose", "swapaxes", "movedim", "permute", "softmax", "log_softmax", "cat",
    "stack", "unbind", "chunk", "split", "flatten", "unflatten", "unsqueeze", "squeeze",
    "sum", "repeat_interleave", "narrow", "select", "logsumexp",
}  # fmt: skip
SIZES = {"view", "reshape", "unflatten", "permute", "expand", "Linear", "Conv1D"}
LEFT_OUT = {
    "transpose", "swapaxes", "permute", "masked_fill", "contiguous", "softmax",
    "repeat_interleave", "flatten",
}  # fmt: skip
TWINS = {"triu": "tril", "tril": "triu", "matmul": "mul", "repeat_interleave": "repeat"}
COMPARED = {ast.Eq: "!=", ast.NotEq: "==", ast.Gt: "<=", ast.LtE: ">", ast.Lt: ">="}


@dataclass(frozen=True)
class Change:
    """A piece of a line, what stands there instead, and what kind of change that is."""

    line: int
    start: int  # bytes
    end: int
    new: str
    kind: str


def put(new: str, kind: str, first: Any, last: Any = None) -> Iterator[Change]:
    """A change from one node to another, where both are on one line."""
    last = last or first
    if first.lineno == last.end_lineno:
        yield Change(first.lineno, first.col_offset, last.end_col_offset, new, kind)


def called(call: ast.Call) -> str:
    """The last part of what is called."""
    func = call.func
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")


def number(node: ast.AST) -> int | None:
    """The whole number that an expression is, of either sign."""
    try:
        value = ast.literal_eval(node) if isinstance(node, ast.expr) else None
    except ValueError:
        return None
    return value if type(value) is int else None


def other_axes(node: ast.AST) -> Iterator[Change]:
    """A neighbouring axis; the other diagonal."""
    if not isinstance(node, ast.Call):
        return
    for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
        n = number(argument)
        if n is not None and called(node) in AXES:
            for near in (n - 1, n + 1):
                if (near < 0) == (n < 0):
                    yield from put(str(near), "axis", argument)
        if n in (0, 1) and called(node) in ("triu", "tril"):
            yield from put(str(1 - n), "diagonal", argument)


def exchanged_sizes(node: ast.AST) -> Iterator[Change]:
    """Two neighbouring sizes, or axes of permute, exchanged."""
    if isinstance(node, ast.Call) and called(node) in SIZES:
        inner = [a.elts for a in node.args if isinstance(a, ast.Tuple | ast.List)]
        for row in (node.args, *inner):
            for one, two in itertools.pairwise(row):
                texts = ast.unparse(one), ast.unparse(two)
                if texts[0] != texts[1] and "*" not in texts[0][0] + texts[1][0]:
                    yield from put(f"{texts[1]}, {texts[0]}", "sizes", one, two)


def calls_left_out(node: ast.AST) -> Iterator[Change]:
    """A method or a dropout not called; a function's twin called instead."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return
    name, owner = called(node), ast.unparse(node.func.value)
    if name in TWINS:
        yield from put(f"{owner}.{TWINS[name]}", "twin", node.func)
    if name in LEFT_OUT and owner not in ("self", "F", "torch", "nn.functional"):
        yield from put(owner, f"no {name}", node)
    if "drop" in name and node.args:
        yield from put(ast.unparse(node.args[0]), "no dropout", node)


def letters(node: ast.AST) -> Iterator[Change]:
    """Two neighbouring letters of an einsum exchanged."""
    if isinstance(node, ast.Call) and called(node) == "einsum":
        text = getattr(node.args[0], "value", "")
        for at, (one, two) in enumerate(itertools.pairwise(str(text))):
            if one.isalpha() and two.isalpha():
                turned = text[:at] + two + one + text[at + 2 :]
                yield from put(repr(turned), "letters", node.args[0])


def operators(node: ast.AST) -> Iterator[Change]:
    """Another operator, or one side alone."""
    if not isinstance(node, ast.BinOp):
        return
    left, right = ast.unparse(node.left), ast.unparse(node.right)
    match node.op:
        case ast.Div():
            yield from put(f"({left} * {right})", "operator", node)
        case ast.Mult():
            yield from put(f"({left} / {right})", "operator", node)
        case ast.MatMult():
            yield from put(f"({right} @ {left})", "product turned", node)
        case ast.Pow() if right in ("0.5", "-0.5"):
            turned = right[1:] if right[0] == "-" else f"-{right}"
            yield from put(f"({left} ** {turned})", "power", node)
    if isinstance(node.op, ast.Div | ast.Mult | ast.Add):
        yield from put(f"({left})", "one side", node)


def opposites(node: ast.AST) -> Iterator[Change]:
    """A mask, a sign or a flag turned round."""
    if isinstance(node, ast.UnaryOp):
        sign = isinstance(node.op, ast.USub)
        if number(node) is None and not isinstance(node.op, ast.UAdd):
            yield from put(ast.unparse(node.operand), "sign" if sign else "not", node)
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARED:
        sides = ast.unparse(node.left), ast.unparse(node.comparators[0])
        turned = f"({sides[0]} {COMPARED[type(node.ops[0])]} {sides[1]})"
        yield from put(turned, "not", node)
    elif isinstance(node, ast.keyword) and node.arg != "bias":
        if ast.unparse(node.value) not in ("True", "False"):
            return
        turned = "False" if ast.unparse(node.value) == "True" else "True"
        yield from put(turned, "flag", node.value)


def indices(node: ast.AST) -> Iterator[Change]:
    """Another index, a slice one shorter, .T left out."""
    if isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
        yield from put(ast.unparse(node.value), "no transpose", node)
    elif isinstance(node, ast.Subscript):
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for part in inner:
            n = number(part)
            if n is not None:
                yield from put(str(n + 1), "index", part)
            elif isinstance(part, ast.Name):
                yield from put("0", "index", part)
            elif isinstance(part, ast.Slice) and part.upper and not part.lower:
                upper = ast.unparse(part.upper)
                yield from put(f"{upper} - 1", "slice", part.upper)


def alike(function: ast.FunctionDef) -> list[set[str]]:
    """Names of a function that are made alike, as queries, keys and values are."""
    made: dict[str, set[str]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Tuple):
                    names = {t.id for t in target.elts if isinstance(t, ast.Name)}
                    made.setdefault(str(node.lineno), set()).update(names)
                elif isinstance(target, ast.Name):
                    made.setdefault(form(node.value), set()).add(target.id)
    return [*made.values(), {argument.arg for argument in function.args.args[1:]}]


def form(value: ast.expr) -> str:
    """An expression without its names and numbers."""
    leaves = (ast.Name, ast.Attribute, ast.Constant)
    parts = [type(node).__name__ for node in ast.walk(value)]
    return " ".join(part for part in parts if part not in {k.__name__ for k in leaves})


def names(function: ast.FunctionDef) -> Iterator[Change]:
    """A name in place of one that is like it; a result that is not kept."""
    groups = alike(function)
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            for other in sorted(set().union(*(g for g in groups if node.id in g))):
                if other != node.id:
                    yield from put(other, "name", node)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            (target, *_), value = node.targets, ast.unparse(node.value)
            if isinstance(target, ast.Name) and target.id in value:
                yield from put(value, "result lost", node)


def layers(function: ast.FunctionDef) -> Iterator[Change]:
    """What one layer or method of the module is given, given to another."""
    nodes = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    own = [f for f in nodes if isinstance(f, ast.Attribute)]
    own = [f for f in own if ast.unparse(f.value) == "self"]
    for node, name in itertools.product(own, sorted({f.attr for f in own})):
        if name != node.attr:
            yield from put(f"self.{name}", "layer", node)


PARTS = (
    other_axes,
    exchanged_sizes,
    calls_left_out,
    letters,
    operators,
    opposites,
    indices,
)


def guards(tree: ast.AST) -> set[ast.AST]:
    """What only asks whether to refuse: no part of attention."""
    tests = [node.test for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.body[0], ast.Raise):
            tests.append(node.test)
    return {part for test in tests for part in ast.walk(test)}


def changes(tree: ast.Module) -> Iterator[Change]:
    """Every change that is known here."""
    left = guards(tree)
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if node not in left:
                    yield from (change for part in PARTS for change in part(node))
            if function.name != "__init__":
                yield from names(function)
                yield from layers(function)


@dataclass(frozen=True)
class Mutant:
    """A text with one change, and the sample that it was."""

    of: Sample
    source: str
    change: Change


def changed(source: str, change: Change) -> str | None:
    """The text with a change in it; None where that is no other program, or where no
    operation is left in the statement that could be named."""
    lines = source.encode().split(b"\n")
    row = lines[change.line - 1]
    row = row[: change.start] + change.new.encode() + row[change.end :]
    lines[change.line - 1] = row
    text = b"\n".join(lines).decode()
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    here = [n for n in ast.walk(tree) if getattr(n, "lineno", 0) == change.line]
    if any(isinstance(n, ast.Assign) and isinstance(n.value, ast.Name) for n in here):
        return None
    return None if ast.dump(tree) == ast.dump(ast.parse(source)) else text


def is_wrong(source: str, fields: dict[str, str]) -> bool:
    """Whether plain loops find a module wrong, in eval or in train mode."""
    with contextlib.redirect_stdout(io.StringIO()):
        return any(fails(check, source, fields) for check in WRONG)


def mutants(sample: Sample, count: int, seed: int = 0) -> list[Mutant]:
    """Some wrong mutants of a right module, of as many kinds as can be."""
    rng = random.Random(f"{sample.name} {seed}")
    kinds: dict[str, dict[Change, None]] = {}  # as ordered sets
    handed = {"call", "padded"} & sample.fields.keys()
    for change in changes(ast.parse(sample.source)):
        if handed and change.kind == "not":
            continue  # a mask that is handed in may mean the one or the other
        kinds.setdefault(change.kind, {})[change] = None
    order = rng.sample(sorted(kinds), len(kinds))
    shuffled = [rng.sample([*kinds[kind]], len(kinds[kind])) for kind in order]
    found: dict[str, Mutant] = {}
    for row in itertools.zip_longest(*shuffled):
        for change in filter(None, row):
            text = changed(sample.source, change)
            if text and text not in found and is_wrong(text, sample.fields):
                found[text] = Mutant(sample, text, change)
            if len(found) == count:
                return list(found.values())
    return list(found.values())


@dataclass(frozen=True)
class Told:
    """What the debugger said of a mutant."""

    mutant: Mutant
    answer: dict[str, Any]

    @property
    def cleared(self) -> bool:
        return self.answer["verdict"] == "no fault"

    @property
    def exact(self) -> bool:
        fault = self.answer["verdict"] == "fault"
        return fault and self.answer["line"] == self.mutant.change.line

    @property
    def repaired(self) -> bool:
        return bool(self.answer.get("repair"))

    @property
    def mended(self) -> bool:
        """Whether plain loops find its repair right."""
        if not self.repaired:
            return False
        source = applied(self.mutant.source, self.answer["repair"])
        return not is_wrong(source, self.mutant.of.fields)

    @property
    def found(self) -> bool:
        return self.exact or self.mended

    def __str__(self) -> str:
        answer, change = self.answer, self.mutant.change
        row = self.mutant.source.splitlines()[change.line - 1].strip()
        return (
            f"{self.mutant.of.name}:{change.line} ({change.kind}): {row}\n"
            f"    {answer['verdict']} at {answer['line']}: {answer['message'][:120]}"
        )


def ask(mutant: Mutant) -> Told:
    """Asked plainly, and if that is not enough with --causal where that is known.

    A mutant may lose its only mask, and then nothing in it says that it wants one.
    """
    answer = examined(mutant.source)
    if answer["verdict"] == "no fault" and mutant.of.fields.get("sees") != "all":
        answer = examined(mutant.source, causal=True)
    return Told(mutant, answer)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="right modules (default: all)")
    parser.add_argument("--count", type=int, default=6, help="of each (default 6)")
    parser.add_argument("--seed", type=int, default=0, help="another choice of them")
    flags = parser.parse_args()
    torch.set_num_threads(1)
    rights = [samples()[name] for name in flags.names] or right_samples()
    chosen = [m for right in rights for m in mutants(right, flags.count, flags.seed)]
    start = time.monotonic()
    told = [ask(mutant) for mutant in chosen]
    seconds = (time.monotonic() - start) / max(len(told), 1)
    print("\n".join(str(one) for one in told if one.cleared or not one.found))
    sums = {
        name: sum(getattr(one, name) for one in told)
        for name in ("cleared", "exact", "repaired", "mended", "found")
    }
    verdicts = Counter(one.answer["verdict"] for one in told)
    print(f"\n{len(told)} mutants of {len(rights)} modules: {dict(verdicts)}")
    print(f"exact line {sums['exact']}")
    print(f"repairs printed {sums['repaired']}, that mend {sums['mended']}")
    print(f"exact line or a repair that mends {sums['found'] / max(len(told), 1):.1%}")
    print(f"{seconds:.2f} s each")


if __name__ == "__main__":
    main()
