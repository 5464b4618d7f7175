"""The recorder: watches torch calls made by given files and writes down each result.

    with Recorder([step15.__file__]) as recorder:
        step15.step(...)
    for entry in recorder.entries: ...

Every torch call passes through a `TorchFunctionMode` as its author wrote it, the links
of a chain one by one. The calling frame gives the place in the source, the place gives
the statement, and the statement gives the name. Where the numbers came from is measured
on the tensors themselves, never taken from the name of the function:

    drawn       no tensor went in, and the random generator moved
    made        no tensor went in, and it did not: torch.tensor, arange, zeros
    unchanged   the very tensor that went in came out
    rearranged  the result lives in the storage of an earlier tensor
    copied      new storage, to which the inputs' numbers were only moved
    computed    new numbers
"""

import ast
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from steps.pytorch import loaded, nn, torch
from steps.walk.source import Place, Source, Statement, fill_in

SMALL = 16_384  # elements; larger results are kept by reference, not cloned

ORIGINS = ("drawn", "made", "computed", "rearranged", "copied", "unchanged")
MOVED = ("rearranged", "copied", "unchanged")  # the numbers are an earlier tensor's
FILLING = ("__init__", "reset_parameters")  # a layer getting its weights
HOUSEKEEPING = loaded.__code__.co_filename  # seeds and weights, no step of its own


@dataclass(eq=False)
class Entry:
    """One result of one torch call, or one weight of a layer that a statement made."""

    name: str  # what the source calls it; "" for a link of a chain
    statement: str  # the whole statement, its comment left out
    expression: str  # the part of it that this call is
    sizes: dict[str, Any]  # the numbers and shapes that the statement could name
    function: str  # torch's name of the call, such as "view"
    place: Place
    way: tuple[int, ...]  # the lines of the first file that led to it, outermost first
    tensor: torch.Tensor  # kept alive: its address must not be used again
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int  # of its first element in the storage, in elements
    contiguous: bool
    origin: str  # one of ORIGINS
    shares_storage_with: str | None  # the tensor that first had this storage
    axes: tuple[str, ...]
    values: torch.Tensor | None  # a copy made at once, None when larger than SMALL
    in_place: bool = False
    index: int | None = None  # which of several results of one call
    call: tuple[Any, tuple, dict] | None = None  # function, args, kwargs
    inputs: tuple[torch.Tensor, ...] = ()  # all that was read, kept with the call

    @classmethod
    def of(cls, tensor: torch.Tensor, small: int, **said: Any) -> "Entry":
        """A tensor as it is now, with its numbers where they are at most `small`."""
        kept = tensor.numel() <= small and not tensor.is_meta
        return cls(
            tensor=tensor,
            shape=tuple(tensor.shape),
            stride=tuple(tensor.stride()),
            offset=int(tensor.storage_offset()),
            contiguous=tensor.is_contiguous(),
            values=tensor.detach().clone() if kept else None,
            **said,
        )

    @property
    def outer(self) -> int:
        """The line of the first file that led to the call: often its own."""
        return self.way[-1] if self.way else self.place.line

    @property
    def here(self) -> str:
        """The statement with the sizes of this run filled in."""
        return fill_in(self.statement, self.sizes)

    def numbers(self) -> torch.Tensor:
        """The values as they were when recorded (the tensor itself when large)."""
        return self.tensor.detach() if self.values is None else self.values


@dataclass(eq=False)
class Call:
    """One torch call that a watched file led to."""

    frame: FrameType  # of the watched file
    at: int  # the instruction there
    callee: FrameType | None  # what that one called; None: torch itself
    place: Place
    statement: Statement | None
    expression: str  # its own part of the statement
    func: Any
    args: tuple
    kwargs: dict
    tensors: list[torch.Tensor]  # all that went in
    results: list[torch.Tensor] = field(default_factory=list)
    changed: list[torch.Tensor] = field(default_factory=list)  # in place
    new: str = "computed"  # where numbers are from that no tensor went into

    @property
    def site(self) -> tuple[FrameType, int, FrameType | None]:
        """Where it was made; the same for all calls inside one call of the source."""
        return self.frame, self.at, self.callee


@dataclass
class Written:
    """A call as the source writes it: a torch call, or all that are made inside it."""

    last: Call
    begin: int  # its results are the entries from here on
    computed: bool = False  # a torch call before the last made new numbers
    inputs: tuple[torch.Tensor, ...] = ()  # all that was read, where calls are kept


class Recorder(torch.overrides.TorchFunctionMode):
    """Record the torch calls that `files` make while this context is open.

    files: source files whose calls are recorded, one or more; calls made deeper, inside
    torch or another file, count as the call of these files that led to them.
    known: tensors and layers from before, by name, for `shares_storage_with`.
    axes: their axis names, by the same names.
    sizes: axis names to sizes, for the axes written in comments.
    keep_calls: keep each call's function and arguments (more memory).
    small: results with more elements than this are kept by reference only.
    origins: tell copies from computed numbers, which takes each call a second time.
    name_axes: name the axes of results, from comments, which must hold, and inputs.
    """

    def __init__(
        self,
        files: Iterable[str],
        known: Mapping[str, Any] | None = None,
        axes: Mapping[str, tuple[str, ...]] | None = None,
        sizes: Mapping[str, int] | None = None,
        keep_calls: bool = False,
        small: int = SMALL,
        origins: bool = True,
        name_axes: bool = True,
    ) -> None:
        super().__init__()
        self.entries: list[Entry] = []
        self.failed: tuple[Place, Any, tuple, dict] | None = None  # a call that raised
        files = list(files)
        self._files, self._first = set(files), files[0]
        self._sizes = dict(sizes or {})
        self._keep_calls = keep_calls
        self._small = small
        self._origins = origins
        self._name_axes = name_axes
        self._sources: dict[str, Source] = {}
        self._positions: dict[CodeType, list[tuple]] = {}
        self._owners: dict[int, tuple[str, torch.Tensor]] = {}
        self._axes: dict[int, tuple[tuple[str, ...], torch.Tensor]] = {}
        self._filled: dict[int, tuple[str, torch.Tensor]] = {}  # weights' origins
        self._counts: dict[tuple, int] = {}
        self._written: Written | None = None  # the last one
        self._unchecked: tuple[str, tuple, tuple, dict] | None = None
        for name, tensor in named_tensors(known or {}):
            self._own(name, tensor)
            named = (axes or {}).get(name.partition(".")[0])
            weight = isinstance(tensor, nn.Parameter) or "." not in name
            if named and weight and len(named) == tensor.dim():
                self._axes[id(tensor)] = (named, tensor)

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        if error == (None, None, None):
            self._check_axes()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        frame, callee = self._caller()
        if frame is None:
            return self._fill(func, args, kwargs or {})
        call = self._call(frame, callee, func, args, kwargs or {})
        versions = [version(tensor) for tensor in call.tensors]
        generator = None if call.tensors else torch.default_generator.get_state()
        try:
            result = func(*args, **call.kwargs)
        except Exception:
            if call.place.column is None:
                self._unname(call)
            if self._keep_calls:
                self.failed = (call.place, func, args, call.kwargs)
            raise
        before = zip(call.tensors, versions, strict=True)
        call.changed = [tensor for tensor, old in before if version(tensor) != old]
        call.results = list(tensors_in(result))
        if result is None:
            call.results = call.changed
        call.new = new(generator)
        if call.results:
            self.record(call)
        return result

    def _fill(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """Make a call that gives a layer its weights; note where the numbers are from.

        The weights themselves are recorded by `name_outputs`.
        """
        generator = torch.default_generator.get_state()
        result = func(*args, **kwargs)
        copied = func is torch.Tensor.copy_
        none_went_in = not any(True for _ in tensors_in((args, kwargs)))
        if copied or none_went_in or getattr(func, "__name__", "").endswith("_"):
            for tensor in tensors_in(result):
                origin = "copied" if copied else new(generator)
                self._filled[storage(tensor)] = (origin, tensor)
        return result

    def _caller(self) -> tuple[FrameType | None, FrameType | None]:
        """The innermost frame of a watched file, and the frame that it called."""
        callee: FrameType | None = None
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename not in self._files:
            code = frame.f_code
            if code.co_name in FILLING and is_layer(frame):
                return None, None  # its weights are recorded by name_outputs
            if code.co_filename == HOUSEKEEPING:
                return None, None
            callee, frame = frame, frame.f_back
        if frame is not None and frame.f_code.co_name in FILLING and is_layer(frame):
            return None, None
        return frame, callee

    def _call(
        self,
        frame: FrameType,
        callee: FrameType | None,
        func: Any,
        args: tuple,
        kwargs: dict,
    ) -> Call:
        """A call that is about to be made, and where it stands in the source."""
        place = self._place(frame)
        source = self._source(place.file)
        statement = source.statement(place)
        expression = statement.text if statement else ""
        if place.column is not None:
            expression = source.text(tuple(place[1:]))  # type: ignore[arg-type]
        tensors = list(tensors_in((args, kwargs)))
        where = (frame, frame.f_lasti, callee, place, statement, expression)
        return Call(*where, func, args, kwargs, tensors)

    def _place(self, frame: FrameType) -> Place:
        code = frame.f_code
        if code not in self._positions:
            get = getattr(code, "co_positions", None)  # Python 3.11 and later
            self._positions[code] = list(get()) if get else []
        positions = self._positions[code]
        if positions:
            line, end, column, end_column = positions[frame.f_lasti // 2]
            if line and end and end_column is not None:
                return Place(code.co_filename, line, end, column, end_column)
        return Place(code.co_filename, frame.f_lineno, frame.f_lineno, None, None)

    def _way(self, frame: FrameType | None) -> tuple[int, ...]:
        """The lines of the first file that led to a frame, outermost first."""
        lines = []
        while frame is not None:
            if frame.f_code.co_filename == self._first:
                lines.append(frame.f_lineno)
            frame = frame.f_back
        return tuple(reversed(lines))

    def _source(self, file: str) -> Source:
        if file not in self._sources:
            self._sources[file] = Source.of(file)
        return self._sources[file]

    def record(self, call: Call) -> None:
        """Write down what one call made: the name, origin and axes of each result."""
        written = self._written = self._written_as(call)
        way, many = self._way(call.frame), len(call.results) > 1
        names = self._source(call.place.file).names(call.place)
        for index, tensor in enumerate(call.results):
            name = name_of(names, index, many, self._counts[call.place])
            origin, owner = self._origin(written, tensor, name or call.expression)
            entry = Entry.of(
                tensor,
                self._small,
                name=name,
                statement=call.statement.text if call.statement else "",
                expression=call.expression,
                sizes=sizes_of(call.frame),
                function=getattr(call.func, "__name__", str(call.func)),
                place=call.place,
                way=way,
                origin=origin,
                shares_storage_with=owner,
                axes=self._axes_of(call, name, tensor),
                in_place=is_in(tensor, call.changed),
                index=index if many else None,
                call=(call.func, call.args, call.kwargs) if self._keep_calls else None,
                inputs=written.inputs,
            )
            self.entries.append(entry)
            if not owner and origin not in ("rearranged", "unchanged"):
                self._own(name or call.expression, tensor)
            self._axes[id(tensor)] = (entry.axes, tensor)

    def _written_as(self, call: Call) -> Written:
        """The call of the source that this one is, or is made inside.

        Of several torch calls inside one the last one's results stand for them all.
        """
        inputs = tuple(call.tensors) if self._keep_calls else ()
        before = self._written
        if before and call.callee and before.last.site == call.site:
            earlier = self.entries[before.begin :]
            computed = any(entry.origin not in MOVED for entry in earlier)
            self._drop(earlier)
            return Written(call, before.begin, computed, before.inputs + inputs)
        if call.place.column is None:
            self._unname(call)
        self._check_axes()
        self._counts[call.place] = self._counts.get(call.place, -1) + 1
        return Written(call, len(self.entries), inputs=inputs)

    def _origin(
        self, written: Written, tensor: torch.Tensor, called: str
    ) -> tuple[str, str | None]:
        """Where a result's numbers are from, and who else's storage holds them."""
        call = written.last
        moved = any(storage(tensor) == storage(t) for t in call.tensors)
        shares = self._owners.get(storage(tensor))
        if moved and not shares:  # such as self.mask, a buffer
            shares = self._local_owner(call.frame, tensor)
        if written.computed and (not shares or shares[0] == called):
            moved, shares = False, None
        owner = shares[0] if shares else None
        if is_in(tensor, call.changed):
            return "computed", owner
        if moved and is_in(tensor, call.tensors):
            return "unchanged", owner
        if shares or moved:
            return "rearranged", owner
        if written.computed:
            return "computed", None
        if not call.tensors:
            return call.new, None
        copies = self._origins and is_copy(call.func, call.args, call.kwargs, tensor)
        return ("copied" if copies else "computed"), None

    def name_outputs(
        self, file: str, function: str, outputs: Mapping[str, Any]
    ) -> None:
        """Record what a function made that no torch call made under its name.

        That is the weights of layers whose comment names their axes, as
        `layer.weight`, and parameters: `nn.Parameter(torch.rand(2, 3))` is the tensor
        that torch.rand made.
        """
        source = self._source(file)
        for name, value in outputs.items():
            place = source.assignment(function, name)
            named = next((e for e in self.entries if e.name == name), None)
            if named is not None and isinstance(value, nn.Parameter):
                named.tensor = value  # by line only, its number got the name at once
            if place is None or named is not None or name == "_":
                continue
            statement = source.statement(place)
            assert statement is not None
            if isinstance(value, nn.Module):
                weights = list(value.named_parameters()) if statement.axes else []
                for part, tensor in weights:
                    self._add(f"{name}.{part}", tensor, statement, place)
            elif isinstance(value, torch.Tensor):
                for entry in self.entries:
                    if storage(entry.tensor) == storage(value) and not entry.name:
                        entry.name, entry.tensor = name, value
                        entry.axes = statement.axes or entry.axes
                        self._owners[storage(value)] = (name, value)
                        break
                else:  # one of several results of a call that made calls of its own
                    if storage(value) not in self._owners:
                        self._add(name, value, statement, place)
        for entry in self.entries:  # views of weights made in the same step
            if entry.origin == "rearranged" and not entry.shares_storage_with:
                owner = self._owners.get(storage(entry.tensor))
                entry.shares_storage_with = owner[0] if owner else None

    def _add(
        self, name: str, tensor: torch.Tensor, statement: Statement, place: Place
    ) -> None:
        """Record a tensor after what its statement, and those before it, made."""
        entry = self._made(name, tensor, statement, place)
        earlier = [
            at
            for at, e in enumerate(self.entries, 1)
            if e.place.file == place.file and e.place.line <= place.line
        ]
        self.entries.insert(max(earlier, default=0), entry)

    def _made(
        self, name: str, tensor: torch.Tensor, statement: Statement, place: Place
    ) -> Entry:
        axes = statement.axes
        if axes is None or len(axes) != tensor.dim():
            axes = tuple(str(size) for size in tensor.shape)
        self._own(name, tensor)
        self._axes[id(tensor)] = (axes, tensor)
        return Entry.of(
            tensor,
            self._small,
            name=name,
            statement=statement.text,
            expression=statement.text.partition(" = ")[2],
            sizes={**self._sizes, **dict(zip(axes, tensor.shape, strict=True))},
            function="parameter",
            place=place,
            way=(),
            origin=self._filled.get(storage(tensor), ("computed",))[0],
            shares_storage_with=None,
            axes=axes,
        )

    def _check_axes(self) -> None:
        """Hold the last axes comment against its tensor; a wrong one is our error."""
        if self._unchecked is None:
            return
        place, axes, shape, values = self._unchecked
        self._unchecked = None
        expected = []
        for axis in axes:
            parts = [part.strip() for part in axis.rstrip("?").split("*")]
            sizes = (int(part) if part.isdigit() else values[part] for part in parts)
            expected.append(math.prod(sizes))
        if tuple(expected) != shape:
            says = f"({', '.join(axes)}) = {tuple(expected)}"
            raise AssertionError(f"{place}: the comment says {says}, not {shape}")

    def _unname(self, call: Call) -> None:
        """By line only, the last call of a statement has its name and its comment.

        The call before this one, if of the same statement, was a link after all.
        """
        if self._written is None or call.statement is None:
            return
        last = self._written.last
        if last.frame is not call.frame or last.at >= call.at or not last.statement:
            return
        if last.statement.node is call.statement.node:
            link = self.entries[-1]
            link.name, self._unchecked = "", None
            link.axes = self._inherited_axes(last, link.tensor)
            self._axes[id(link.tensor)] = (link.axes, link.tensor)

    def _drop(self, earlier: list[Entry]) -> None:
        """Forget the last entries, and let go of their tensors."""
        for entry in earlier:
            self._axes.pop(id(entry.tensor), None)
            owner = self._owners.get(storage(entry.tensor))
            if owner is not None and owner[1] is entry.tensor:
                del self._owners[storage(entry.tensor)]
        del self.entries[len(self.entries) - len(earlier) :]

    def _own(self, name: str, tensor: torch.Tensor) -> None:
        self._owners.setdefault(storage(tensor), (name, tensor))

    def _local_owner(
        self, frame: FrameType, tensor: torch.Tensor
    ) -> tuple[str, torch.Tensor] | None:
        """The name of the storage's tensor among those of the frame's layers."""
        layers = {k: v for k, v in frame.f_locals.items() if isinstance(v, nn.Module)}
        for name, other in named_tensors(layers):
            if storage(other) == storage(tensor):
                self._own(name, other)
        return self._owners.get(storage(tensor))

    def _axes_of(self, call: Call, name: str, tensor: torch.Tensor) -> tuple[str, ...]:
        """Axis names: from the statement's comment, else from the inputs' axes."""
        statement = call.statement
        if not self._name_axes:
            return ()
        if statement and statement.axes is not None and (name or is_return(statement)):
            place = f"{call.frame.f_code.co_filename}:{call.frame.f_lineno}"
            values = {**self._sizes, **sizes_of(call.frame)}
            self._unchecked = (place, statement.axes, tuple(tensor.shape), values)
            return statement.axes
        return self._inherited_axes(call, tensor)

    def _inherited_axes(self, call: Call, tensor: torch.Tensor) -> tuple[str, ...]:
        """The axes of the inputs, moved as the call moves them; else the sizes."""
        shape = tuple(tensor.shape)
        for other in call.tensors:
            axes = self._axes.get(id(other), (None,))[0]
            if not axes or len(axes) != tensor.dim():
                continue
            moved = moved_axes(call.func, call.args, axes, other, tensor)
            if moved is not None:
                return moved
        name = getattr(call.func, "__name__", "")
        if name in ("linear", "matmul", "__matmul__"):
            first, second = (self._axes.get(id(t), ((),))[0] for t in call.tensors[:2])
            if second and len(first) == len(shape):
                return (*first[:-1], second[0 if name == "linear" else -1])
            return tuple(map(str, shape))
        for other in call.tensors:
            axes = self._axes.get(id(other), (None,))[0]
            if axes and tuple(other.shape) == shape:
                return axes
        return tuple(map(str, shape))


def name_of(names: list[str], index: int, many: bool, call: int) -> str:
    """The name of a result: number `index` of several, of call `call` at a place."""
    if len(names) > 1:  # q, k, v = (... for w in ...): one after the other
        name = names[(index if many else call) % len(names)]
        return "" if name == "_" else name
    name = names[0] if names else ""
    return f"{name}[{index}]" if many and name else name


def is_in(tensor: torch.Tensor, others: list[torch.Tensor]) -> bool:
    """Whether it is one of these very tensors."""
    return any(tensor is other for other in others)


def is_return(statement: Statement) -> bool:
    return isinstance(statement.node, ast.Return)


def is_layer(frame: FrameType) -> bool:
    return isinstance(frame.f_locals.get("self"), nn.Module)


def moved_axes(
    func: Any,
    args: tuple,
    axes: tuple[str, ...],
    before: torch.Tensor,
    after: torch.Tensor,
) -> tuple[str, ...] | None:
    """The axes after a transpose or permute: run the same call on a marked shape."""
    name = getattr(func, "__name__", "")
    if name not in ("transpose", "permute", "swapaxes", "__get__", "t", "mT"):
        return None
    marks = torch.empty(1).expand(tuple(range(2, 2 + before.dim())))
    with torch._C.DisableTorchFunction():
        moved = func(marks, *args[1:])
    return tuple(axes[size - 2] for size in moved.shape)


def sizes_of(frame: FrameType) -> dict[str, Any]:
    """What the frame's code can name: numbers, also of self, and shapes: (b, 4)."""
    found = {}
    local = frame.f_locals
    owner = local.get("self")
    if owner is not None and hasattr(owner, "__dict__"):
        for key, value in vars(owner).items():
            if type(value) in (int, float):
                found[key] = value
    for key, value in local.items():
        kind = type(value)
        if kind in (int, float):
            found[key] = value
        elif isinstance(value, tuple) and value and {*map(type, value)} == {int}:
            found[key] = tuple(value)
    return found


def new(generator: torch.Tensor | None) -> str:
    """Where numbers that no tensor went into are from, by the generator's old state."""
    if generator is None:
        return "computed"
    moved = not torch.equal(generator, torch.default_generator.get_state())
    return "drawn" if moved else "made"


def version(tensor: torch.Tensor) -> int:
    """How often a tensor was changed in place; under inference mode nobody counts."""
    return 0 if tensor.is_inference() else tensor._version


def storage(tensor: torch.Tensor) -> int:
    """The address of the memory that holds the tensor's numbers."""
    return tensor.untyped_storage()._cdata


def tensors_in(value: Any, around: tuple[int, ...] = ()) -> Iterator[torch.Tensor]:
    """Every tensor in nested tuples, lists and dicts.

    around: the ids of those that `value` lies in; one that holds itself is not entered.
    """
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list | dict) and id(value) not in around:
        for part in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(part, (*around, id(value)))


def named_tensors(values: Mapping[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor) for tensors; name.weight and so on for the tensors of layers."""
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            yield name, value
        elif isinstance(value, nn.Module):
            for part, tensor in (*value.named_parameters(), *value.named_buffers()):
                yield f"{name}.{part}", tensor


def is_copy(func: Any, args: tuple, kwargs: dict, result: torch.Tensor) -> bool:
    """Whether `result` holds its inputs' numbers and nothing else.

    Copying commutes with any function of the numbers, and computing does not: the call
    is made again on changed numbers, and the outcome must have changed in the same way.
    """
    inputs = [t for t in tensors_in((args, kwargs)) if t.dtype == result.dtype]
    if not inputs or result.is_meta or not result.numel() or result.dtype == torch.bool:
        return False
    with torch._C.DisableTorchFunction(), torch.no_grad():
        flat = result.detach().reshape(-1)
        for at in {0, flat.numel() // 3, flat.numel() // 2, flat.numel() - 1}:
            if not any((t.detach() == flat[at]).any() for t in inputs):
                return False

        def change(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return scrambled(value) if value.dtype == result.dtype else value
            if isinstance(value, tuple | list):
                return type(value)([change(part) for part in value])
            if isinstance(value, dict):
                return {key: change(part) for key, part in value.items()}
            return value

        with torch.random.fork_rng(devices=[]):  # dropout must not draw twice
            try:
                again = func(*change(args), **change(kwargs))
            except (RuntimeError, TypeError, IndexError):
                return False
        return any(
            t.shape == result.shape and torch.equal(t, change(result.detach()))
            for t in tensors_in(again)
        )


def scrambled(value: torch.Tensor) -> torch.Tensor:
    """(-1 - x)^3 of each number x. It falls as x grows, so a maximum does not commute
    with it, and neither does a sum, mean, sign change or absolute value."""
    base = -1 - value.nan_to_num(nan=5.0, posinf=7.0, neginf=-11.0)
    return base.mul(base).mul_(base)
