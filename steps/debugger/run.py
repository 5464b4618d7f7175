"""One recorded run of a module: its operations as a graph, and what each depends on."""

import contextlib
import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from steps.debugger.load import failed, first_line, unless_memory
from steps.errors import UserError
from steps.pytorch import nn, torch
from steps.walk.recorder import Call, Entry, Recorder, storage, tensors_in
from steps.walk.source import Place


class Opaque(UserError):
    """There is a tensor whose numbers do not lie in a storage, one after the other."""

    def __init__(self, who: str, kind: str) -> None:
        a = "an" if kind[0] in "aeio" else "a"
        super().__init__(f"{who} {a} {kind} tensor, which is not looked into")


def opaque(tensor: torch.Tensor) -> str:
    """What kind of tensor the recorder cannot look into; of an ordinary one, ""."""
    kinds = {
        "nested": tensor.is_nested,
        "sparse": tensor.layout is not torch.strided,
        "meta": tensor.is_meta,
        "quantized": tensor.is_quantized,
    }
    return next((kind for kind, found in kinds.items() if found), "")


def uncommon(output: torch.Tensor) -> str:
    """What kind of output has no numbers to compare; of an ordinary one, ""."""
    if type(output) not in (torch.Tensor, nn.Parameter):
        return type(output).__name__
    ordinary = output.is_floating_point() and output.dtype.itemsize > 1
    return opaque(output) or ("" if ordinary else str(output.dtype).split(".")[1])


class Watcher(Recorder):
    """The recorder, for a reader's file: comments there are not held to ours."""

    def __init__(
        self, replace: dict[int, torch.Tensor] | None = None, **more: Any
    ) -> None:
        super().__init__(name_axes=False, **more)
        self._number = 0  # of the torch call
        self._replace = replace or {}
        self.numbers: dict[int, int] = {}  # id of an entry -> number of its last call
        # Calls of multi_head_attention_forward.
        self.fused: list[tuple[tuple, dict]] = []
        self.fixed: dict[int, torch.Tensor] = {}  # made on the CPU whatever the device
        # Where one meets the module's own.
        self.mixed: list[tuple[Entry, torch.Tensor]] = []

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self._number += 1
        number = self._number
        if any(wrapped(t) for t in tensors_in((args, kwargs))):
            return func(*args, **(kwargs or {}))  # inside vmap: only its result is seen
        if getattr(func, "__name__", "") == "multi_head_attention_forward":
            self.fused.append((args, kwargs or {}))
        result = super().__torch_function__(func, types, args, kwargs)
        if self.entries:
            self.numbers.setdefault(id(self.entries[-1]), number)
        self._follow_device(func, args, kwargs or {}, result)
        return self._replace.get(number, result)

    def record(self, call: Call) -> None:
        for kind in filter(None, map(opaque, call.results)):
            raise Opaque(f"line {call.place.line} makes", kind)
        super().record(call)

    def _follow_device(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Which results would be on the CPU whatever device the module and x are on."""
        made = [t for t in tensors_in(result) if t.dim()]
        if not made:
            return
        name = getattr(func, "__name__", "")
        given = [t for t in tensors_in((args, kwargs)) if t.dim()]
        told = kwargs.get("device")
        fixed = [t for t in given if id(t) in self.fixed]
        if name in ("to", "cuda", "type_as"):
            told = told or next(
                (a for a in args[1:] if not isinstance(a, torch.dtype | bool)), None
            )
            stays = bool(fixed) and told is None
        elif told is not None:
            stays = isinstance(told, str) and told == "cpu"
        elif not given:
            stays = not any(True for _ in tensors_in((args, kwargs)))
        elif name.endswith("_like") or name.startswith("new_"):
            stays = id(given[0]) in self.fixed
        else:
            stays = len(fixed) == len(given)
            if (
                fixed
                and not stays
                and name not in ("__getitem__", "__setitem__")
                and self.entries
            ):
                self.mixed.append((self.entries[-1], fixed[0]))
        for tensor in made:
            if stays:
                self.fixed[id(tensor)] = tensor
            else:  # moved: on the CPU that may be the tensor itself
                self.fixed.pop(id(tensor), None)


def wrapped(tensor: torch.Tensor) -> bool:
    """Whether a tensor stands for many inside torch.vmap, and has no storage."""
    return torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def as_tokens(value: torch.Tensor, rows: tuple[int, int] | None) -> torch.Tensor:
    """A tensor with an image's rows and columns as one axis."""
    for at in range(value.dim() - 1) if rows else ():
        if tuple(value.shape[at : at + 2]) == rows:
            return value.flatten(at, at + 1)
    return value


@dataclass(eq=False)
class Node:
    """One operation of a run."""

    index: int
    entry: Entry
    inputs: list["Node"] = field(default_factory=list)  # recorded ones
    uses_x: bool = False
    reads_x: bool = False  # takes the module's input itself
    params: dict[str, torch.Tensor] = field(default_factory=dict)  # that enter here
    constants: list[tuple[torch.Tensor, "Node | None"]] = field(default_factory=list)
    used: bool = False  # by a later operation, or returned
    number: int = 0  # of the torch call
    calls: list[int] = field(default_factory=list)  # lines on the way, outermost first
    unseen: bool = False  # reads something made of x where the recorder does not look
    rows: tuple[int, int] | None = None  # of images: rows and columns, taken as tokens

    @property
    def value(self) -> torch.Tensor:
        """Its numbers; an image's rows and columns are one axis, that of tokens."""
        return as_tokens(self.entry.numbers(), self.rows)

    @property
    def line(self) -> int:
        return self.entry.place.line


@dataclass
class Run:
    """What one forward pass did."""

    x: torch.Tensor  # what it was given, as it is afterwards
    nodes: list[Node]
    result: Any  # what forward returned; None when it raised
    outputs: list[torch.Tensor]
    error: BaseException | None = None
    place: Place | None = None  # of the statement of the file that raised
    failed: tuple[Place, Any, tuple, dict] | None = None  # the torch call that raised
    fused: list[tuple[tuple, dict]] = field(default_factory=list)
    mixed: list[tuple[Entry, torch.Tensor]] = field(default_factory=list)
    shown: torch.Tensor | None = None  # x as forward was given it, an image's as tokens

    @property
    def output(self) -> torch.Tensor | None:
        """The first tensor returned."""
        return self.outputs[0] if self.outputs else None

    def node_of(self, tensor: torch.Tensor) -> Node | None:
        """The last operation whose result is this tensor."""
        return next((n for n in reversed(self.nodes) if n.entry.tensor is tensor), None)


DEEPEST = 200  # what is nested deeper, in lists or modules, is not looked at


def state_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """Every tensor that the module holds, parameters or not, by path."""
    found: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    todo: list[tuple[str, Any, int]] = [("", module, 0)]
    while todo:
        path, value, depth = todo.pop()
        if isinstance(value, torch.Tensor):
            found.setdefault(path, value)
        elif id(value) not in seen and depth < DEEPEST:
            held = parts_of(value)
            if held:
                seen.add(id(value))
            dot = path + "." if path else ""
            todo += [(f"{dot}{name}", part, depth + 1) for name, part in held[::-1]]
    return found


def parts_of(value: Any) -> list[tuple[Any, Any]]:
    """(name, part) for all that a module, list or dict holds."""
    if isinstance(value, nn.Module):
        known = {**value._parameters, **value._buffers, **value._modules}
        return list(known.items()) + [
            (name, part)
            for name, part in vars(value).items()
            if not name.startswith("_") or isinstance(part, torch.Tensor)
        ]
    if isinstance(value, list | tuple):
        return list(enumerate(value))
    return list(value.items()) if isinstance(value, dict) else []


def squares_of(module: nn.Module) -> list[int]:
    """The sizes of the square tables, such as masks, that a module keeps."""
    tables = [t for t in state_of(module).values() if not isinstance(t, nn.Parameter)]
    return [
        table.shape[-1]
        for table in tables
        if table.dim() >= 2 and table.shape[-1] == table.shape[-2]
    ]


def is_weight(module_state: dict[str, torch.Tensor], path: str) -> bool:
    """Whether a tensor of the module is there to be learnt: its numbers are many."""
    tensor = module_state[path]
    if isinstance(tensor, nn.Parameter):
        return True
    return tensor.is_floating_point() and tensor.dim() >= 2 and is_random(tensor)


def is_random(tensor: torch.Tensor) -> bool:
    """Nearly all numbers distinct and finite, as drawn weights are."""
    flat = tensor.detach().reshape(-1)
    if flat.is_meta or flat.numel() < 6 or not bool(torch.isfinite(flat).all()):
        return False
    return flat.unique().numel() > 0.9 * flat.numel() and bool((flat < 0).any())


def same_numbers(value: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have the same numbers, in any order."""
    if other.numel() != value.numel() or not other.is_floating_point():
        return False
    one, two = (t.double().reshape(-1).sort().values for t in (value, other))
    return bool(torch.isclose(one, two, rtol=1e-6, atol=1e-9).all())


def record(
    module: nn.Module,
    call: Callable[[], Any],
    x: torch.Tensor,
    file: str,
    small: int = 65_536,
    weights: dict[str, torch.Tensor] | None = None,
    replace: dict[int, torch.Tensor] | None = None,
    grad: bool = False,
) -> Run:
    """Run `call` once under the recorder and link its operations into a graph.

    replace: results to put in place of those of the torch calls with these numbers.
    """
    watcher = Watcher(files=[file], keep_calls=True, small=small, replace=replace)
    result, error, place = None, None, None
    with torch.set_grad_enabled(grad), watcher:
        try:
            result = call()
        except (Exception, SystemExit) as raised:
            unless_memory(raised)
            error = raised
    if isinstance(error, Opaque):
        raise error
    outputs = list(tensors_in(result))
    for kind in filter(None, [*map(uncommon, outputs[:1]), *map(opaque, outputs)]):
        raise Opaque("forward returns", kind)
    if error is not None:
        # With gradients on: torch has short cuts without them, which check less.
        if isinstance(error, Exception) and not replace and comes_back(call, True):
            if not comes_back(call, False):  # it calls backward
                raise UserError(
                    f"forward cannot run without gradients: {first_line(error)}"
                )
            raise UserError(failed(error)) from error
        place = place_of(error, file)
    run = Run(x, [], result, outputs, error, place, watcher.failed)
    if weights is None:
        state = state_of(module)
        weights = {path: t for path, t in state.items() if is_weight(state, path)}
    run.fused, run.mixed = watcher.fused, watcher.mixed
    link(run, watcher.entries, x, weights)
    for node in run.nodes:
        node.number = watcher.numbers.get(id(node.entry), 0)
        node.calls = list(node.entry.way)
    return run


def comes_back(call: Callable[[], Any], grad: bool) -> bool:
    """Whether a call raises nothing when it is not watched."""
    with torch.set_grad_enabled(grad):
        try:
            call()
        except (Exception, SystemExit):
            return False
    return True


def depend(run: Run, other: Run) -> None:
    """Take back `uses_x` where a changed input changed nothing, as in zeros_like."""
    if len(run.nodes) != len(other.nodes):
        return
    constant: set[Node] = set()
    for node, twin in zip(run.nodes, other.nodes, strict=True):
        for (one, maker), (two, _) in zip(node.constants, twin.constants, strict=False):
            if maker is None and one.shape == two.shape and not torch.equal(one, two):
                node.uses_x = node.unseen = True  # of what no recorded operation made
        node.uses_x = node.uses_x or any(n.uses_x for n in node.inputs)
        if not node.uses_x:
            continue
        if node.entry.function.endswith("_like") or node.entry.function.startswith(
            "new_"
        ):
            node.uses_x = bool(
                node.value.shape == twin.value.shape
                and (node.value != twin.value).any()
            )
        elif (
            node.inputs and not node.reads_x and all(n in constant for n in node.inputs)
        ):
            node.uses_x = False
        if not node.uses_x:
            constant.add(node)
    for node in run.nodes:
        kept = [n for n in node.inputs if n not in constant]
        node.constants += [(n.entry.tensor, n) for n in node.inputs if n in constant]
        node.inputs = kept


def place_of(error: BaseException, file: str) -> Place | None:
    """The innermost place of `file` on the way to the error."""
    found = None
    with contextlib.suppress(Exception):
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename == file and frame.lineno:
                end = getattr(frame, "end_lineno", None) or frame.lineno
                columns = (
                    getattr(frame, "colno", None),
                    getattr(frame, "end_colno", None),
                )
                found = Place(file, frame.lineno, end, *columns)
    return found


# Calls that take a type, a device or a shape from a second tensor, and no number.
AS_ANOTHER = ("to", "type_as", "view_as", "reshape_as", "expand_as")


class Makers:
    """Where every tensor of a run comes from: operations, weights, the input."""

    def __init__(self, x: torch.Tensor, weights: dict[str, torch.Tensor]) -> None:
        self.x = x
        self.by_tensor: dict[int, list[Node]] = {}  # those that made or changed it
        self.by_storage: dict[int, list[Node]] = {}
        self.weights: dict[int, tuple[str, torch.Tensor]] = {}
        for name, tensor in weights.items():
            self.weights[id(tensor)] = name, tensor
            self.weights.setdefault(storage(tensor), (name, tensor))

    def add(self, node: Node) -> None:
        made = node.entry.tensor
        self.by_tensor.setdefault(id(made), []).append(node)
        self.by_storage.setdefault(storage(made), []).append(node)

    def of(self, tensor: torch.Tensor) -> Node | None:
        """The last operation that made it; one rewritten in place is read as it is."""
        found = list(self.by_tensor.get(id(tensor), []))
        alike = self.by_storage.get(storage(tensor), [])
        found += [node for node in alike if node.entry.in_place]
        return max(found, key=lambda node: node.index, default=None)

    def read(self, node: Node, tensor: torch.Tensor) -> None:
        """Note on a node what this tensor is, which it was given."""
        made = self.of(tensor)
        if made is not None and made.uses_x:
            if made not in node.inputs:
                node.inputs.append(made)
        elif made is not None:
            node.params |= made.params
            if not made.params:
                node.constants.append((tensor, made))
        elif id(tensor) in self.weights or storage(tensor) in self.weights:
            known = self.weights.get(id(tensor)) or self.weights[storage(tensor)]
            node.params[known[0]] = known[1]
        elif tensor is self.x or storage(tensor) == storage(self.x):
            node.reads_x = True
        else:
            node.constants.append((tensor, None))


def link(
    run: Run, entries: list[Entry], x: torch.Tensor, weights: dict[str, torch.Tensor]
) -> None:
    """Make nodes of the entries: whose result each one reads."""
    makers = Makers(x, weights)
    for index, entry in enumerate(entries):
        if entry.origin in ("drawn", "made"):
            entry.origin = "computed"
        entry.name = name_of(entry)
        node = Node(index, entry)
        read = entry.inputs[:1] if entry.function in AS_ANOTHER else entry.inputs
        for tensor in read:
            makers.read(node, tensor)
        node.uses_x = node.reads_x or any(n.uses_x for n in node.inputs)
        for other in node.inputs:
            other.used = True
        makers.add(node)
        run.nodes.append(node)
    last_reads = list(tensors_in(run.failed[2:])) if run.failed else []
    for tensor in (*run.outputs, *last_reads):
        for node in makers.by_tensor.get(id(tensor), [])[-1:]:
            node.used = True


def name_of(entry: Entry) -> str:
    """The name of a result; of one of several, as in q, k, v = ..., its own."""
    if entry.index is None:
        return entry.name
    if f"*{entry.expression}" in entry.statement:
        return ""  # starred among others: which name is whose is not known
    target = re.match(r"\(?([\w., ]+)\)? = ", entry.statement)
    names = [part.strip() for part in target[1].split(",")] if target else []
    if not entry.name and entry.index < len(names) > 1:
        return names[entry.index]
    return entry.name
