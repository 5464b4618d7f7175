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
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, NamedTuple

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
    outer: int  # the line of the first file that led to the call: often its own
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

    @property
    def here(self) -> str:
        """The statement with the sizes of this run filled in."""
        return fill_in(self.statement, self.sizes)

    def numbers(self) -> torch.Tensor:
        """The values as they were when recorded (the tensor itself when large)."""
        return self.tensor.detach() if self.values is None else self.values


class Call(NamedTuple):
    """One torch call, after it was made."""

    func: Any
    args: tuple
    kwargs: dict
    tensors: list[torch.Tensor]  # all that went in
    results: list[torch.Tensor]
    changed: list[torch.Tensor]  # in place
    new: str  # where numbers are from if no tensor went in: "drawn" or "made"


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
        self._sources: dict[str, Source] = {}
        self._positions: dict[CodeType, list[tuple]] = {}
        self._owners: dict[int, tuple[str, torch.Tensor]] = {}
        self._axes: dict[int, tuple[tuple[str, ...], torch.Tensor]] = {}
        self._filled: dict[int, tuple[str, torch.Tensor]] = {}  # weights' origins
        self._counts: dict[tuple, int] = {}
        self._last: tuple[Any, ...] = ()
        self._read: tuple[Any, ...] = ()  # by the last call, and what it called
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
        kwargs = kwargs or {}
        frame, callee = self._caller()
        tensors = list(tensors_in((args, kwargs)))
        if frame is None:
            return self._fill(func, args, kwargs, tensors)
        versions = [version(tensor) for tensor in tensors]
        generator = None if tensors else torch.default_generator.get_state()
        try:
            result = func(*args, **kwargs)
        except Exception:
            place = self._place(frame)
            if place.column is None:
                self._unname(frame, self._source(place.file).statement(place))
            if self._keep_calls:
                self.failed = (place, func, args, kwargs)
            raise
        changed = [t for t, v in zip(tensors, versions, strict=True) if version(t) != v]
        results = list(tensors_in(result)) or (changed if result is None else [])
        if results:
            call = Call(func, args, kwargs, tensors, results, changed, new(generator))
            self._record(frame, callee, call)
        return result

    def _fill(
        self, func: Any, args: tuple, kwargs: dict, tensors: list[torch.Tensor]
    ) -> Any:
        """Make a call that gives a layer its weights; note where the numbers are from.

        The weights themselves are recorded by `name_outputs`.
        """
        generator = torch.default_generator.get_state()
        result = func(*args, **kwargs)
        copied = func is torch.Tensor.copy_
        if copied or not tensors or getattr(func, "__name__", "").endswith("_"):
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

    def _outer(self, frame: FrameType, place: Place) -> int:
        """The line of the first file from which this call was reached."""
        around: FrameType | None = frame
        while around is not None and around.f_code.co_filename != self._first:
            around = around.f_back
        return place.line if around in (frame, None) else around.f_lineno

    def _source(self, file: str) -> Source:
        if file not in self._sources:
            self._sources[file] = Source.of(file)
        return self._sources[file]

    def _record(self, frame: FrameType, callee: FrameType | None, call: "Call") -> None:
        """Write down what one call made."""
        place = self._place(frame)
        source = self._source(place.file)
        statement = source.statement(place)
        expression = statement.text if statement else ""
        if place.column is not None:
            expression = source.text(tuple(place[1:]))  # type: ignore[arg-type]
        computed, read = self._before(frame, callee, place, statement, call)
        self._last = (frame, frame.f_lasti, callee, len(self.entries))
        self._read = (call.func, call.args, call.tensors)
        many = len(call.results) > 1
        for index, tensor in enumerate(call.results):
            name = name_of(source.names(place), index, many, self._counts[place])
            origin, shares = self._origin(
                frame, call, tensor, name or expression, computed
            )
            entry = Entry(
                name=name,
                statement=statement.text if statement else "",
                expression=expression,
                sizes=sizes_of(frame),
                function=getattr(call.func, "__name__", str(call.func)),
                place=place,
                outer=self._outer(frame, place),
                tensor=tensor,
                shape=tuple(tensor.shape),
                stride=tuple(tensor.stride()),
                offset=int(tensor.storage_offset()),
                contiguous=tensor.is_contiguous(),
                origin=origin,
                shares_storage_with=shares,
                axes=self._axes_of(frame, statement, name, tensor, call),
                values=self._kept(tensor),
                in_place=any(tensor is other for other in call.changed),
                index=index if many else None,
                call=(call.func, call.args, call.kwargs) if self._keep_calls else None,
                inputs=read,
            )
            self.entries.append(entry)
            if not shares and origin not in ("rearranged", "unchanged"):
                self._own(name or expression, tensor)
            self._axes[id(tensor)] = (entry.axes, tensor)

    def _before(
        self,
        frame: FrameType,
        callee: FrameType | None,
        place: Place,
        statement: Statement | None,
        call: "Call",
    ) -> tuple[bool, tuple[torch.Tensor, ...]]:
        """Close what came before this call: is it a new step, or part of the last one?

        Several torch calls made inside one call of the source are one step of it: the
        last one's results stand for them all. Returns whether an earlier one of them
        made new numbers, and all that they read.
        """
        read = tuple(call.tensors) if self._keep_calls else ()
        if callee is not None and self._last[:3] == (frame, frame.f_lasti, callee):
            earlier = self.entries[self._last[3] :]
            self._drop(earlier)
            read = tuple(t for entry in earlier for t in entry.inputs) + read
            return any(entry.origin not in MOVED for entry in earlier), read
        if place.column is None:
            self._unname(frame, statement)
        self._check_axes()
        self._counts[place] = self._counts.get(place, -1) + 1
        return False, read

    def _origin(
        self,
        frame: FrameType,
        call: "Call",
        tensor: torch.Tensor,
        called: str,
        computed: bool,
    ) -> tuple[str, str | None]:
        """Where a result's numbers are from, and who else's storage holds them.

        computed: an earlier call of the same step made new numbers.
        """
        moved = any(storage(tensor) == storage(t) for t in call.tensors)
        shares = self._owners.get(storage(tensor))
        if moved and not shares:  # such as self.mask, a buffer
            shares = self._local_owner(frame, tensor)
        if computed and (not shares or shares[0] == called):
            moved, shares = False, None
        owner = shares[0] if shares else None
        if any(tensor is other for other in call.changed):
            return "computed", owner
        if moved and any(tensor is other for other in call.tensors):
            return "unchanged", owner
        if shares or moved:
            return "rearranged", owner
        if computed:
            return "computed", None
        if not call.tensors:
            return call.new, None
        copies = self._origins and is_copy(call.func, call.args, call.kwargs, tensor)
        return ("copied" if copies else "computed"), None

    def _kept(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The numbers as they are now, where they are few enough to keep."""
        small = tensor.numel() <= self._small and not tensor.is_meta
        return tensor.detach().clone() if small else None

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
        return Entry(
            name=name,
            statement=statement.text,
            expression=statement.text.partition(" = ")[2],
            sizes={**self._sizes, **dict(zip(axes, tensor.shape, strict=True))},
            function="parameter",
            place=place,
            outer=place.line,
            tensor=tensor,
            shape=tuple(tensor.shape),
            stride=tuple(tensor.stride()),
            offset=int(tensor.storage_offset()),
            contiguous=tensor.is_contiguous(),
            origin=self._filled.get(storage(tensor), ("computed",))[0],
            shares_storage_with=None,
            axes=axes,
            values=self._kept(tensor),
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

    def _unname(self, frame: FrameType, statement: Statement | None) -> None:
        """By line only, the last call of a statement has its name and its comment.

        The call before this one, if of the same statement, was a link after all.
        """
        if not self.entries or self._last[0] is not frame or statement is None:
            return
        link = self.entries[-1]
        before = self._source(link.place.file).statement(link.place)
        if before and before.node is statement.node and frame.f_lasti > self._last[1]:
            link.name, self._unchecked = "", None
            link.axes = self._inherited_axes(link.tensor, *self._read)
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

    def _axes_of(
        self,
        frame: FrameType,
        statement: Statement | None,
        name: str,
        tensor: torch.Tensor,
        call: "Call",
    ) -> tuple[str, ...]:
        """Axis names: from the statement's comment, else from the inputs' axes."""
        if statement and statement.axes is not None and (name or is_return(statement)):
            place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            values = {**self._sizes, **sizes_of(frame)}
            self._unchecked = (place, statement.axes, tuple(tensor.shape), values)
            return statement.axes
        return self._inherited_axes(tensor, call.func, call.args, call.tensors)

    def _inherited_axes(
        self,
        tensor: torch.Tensor,
        func: Any,
        args: tuple,
        tensors: list[torch.Tensor],
    ) -> tuple[str, ...]:
        """The axes of the inputs, moved as the call moves them; else the sizes."""
        shape = tuple(tensor.shape)
        for other in tensors:
            axes = self._axes.get(id(other), (None,))[0]
            if not axes or len(axes) != tensor.dim():
                continue
            moved = moved_axes(func, args, axes, other, tensor)
            if moved is not None:
                return moved
        name = getattr(func, "__name__", "")
        if name in ("linear", "matmul", "__matmul__"):
            first, second = (self._axes.get(id(t), ((),))[0] for t in tensors[:2])
            if second and len(first) == len(shape):
                return (*first[:-1], second[0 if name == "linear" else -1])
            return tuple(map(str, shape))
        for other in tensors:
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
