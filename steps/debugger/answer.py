"""A diagnosis as bytes and back, between processes that need not trust one another.

The number of bytes of a JSON object; the object, each field of `Diagnosis` by name and
"traceback", the text of a fault of ours; then the numbers of the trace's tensors, where
they are wanted, as they lie in memory. What comes back is data of the shapes below and
nothing else: no code can be in it.
"""

import ctypes
import json
import math
from dataclasses import fields, replace
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from steps.debugger.result import EXIT, Diagnosis
from steps.pytorch import torch

HEAD = 8  # bytes of a length
WORDS = 10_000  # characters of a text; what is longer is cut

# Fields of other types live in one process only, as the node does.
FIELDS = {f.name: f.type for f in fields(Diagnosis) if not isinstance(f.type, str)}
ROW = {  # of the trace, see steps.debugger.result
    "line": int | None,
    "column": int | None,
    "end_line": int | None,
    "end_column": int | None,
    "statement": str,
    "expression": str,
    "name": str,
    "function": str,
    "shape": list[int],
    "stage": str | None,
    "axes": list[str] | None,
    "origin": str,
    "ok": bool | None,
    "first_wrong": bool,
    "follows": bool,
}
TYPES = {
    str(dtype): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    )
}


def packed(
    found: Diagnosis, room: int, values: bool = False, traceback: str = ""
) -> bytes:
    """A diagnosis in at most `room` bytes, without its trace where there is no more.

    values: with the tensors of the trace, from the first on, as far as there is room.
    """
    rows = [{n: v for n, v in row.items() if n != "values"} for row in found.trace]
    whole = {name: cut(getattr(found, name)) for name in FIELDS if name != "trace"}
    whole |= {"trace": cut(rows), "traceback": cut(traceback)}
    text = json.dumps(whole, allow_nan=False)
    left = room - HEAD - len(text) - 32 * len(rows)  # for the names of their types
    if left < 0 and rows:  # a report without its table
        return packed(replace(found, trace=[]), room, traceback=traceback)
    parts: list[bytes] = []
    for row, given in zip(whole["trace"], found.trace if values else (), strict=False):
        tensor = given.get("values")
        if not isinstance(tensor, torch.Tensor) or str(tensor.dtype) not in TYPES:
            continue
        left -= tensor.nbytes
        if left < 0:
            break
        tensor = tensor.detach().contiguous()
        row["values"] = str(tensor.dtype)
        parts.append(ctypes.string_at(tensor.data_ptr(), tensor.nbytes))
    text = json.dumps(whole, allow_nan=False)
    return b"".join([len(text).to_bytes(HEAD, "big"), text.encode(), *parts])


def cut(value: Any) -> Any:
    """What JSON holds, its texts cut to WORDS characters."""
    if isinstance(value, str):
        return value if len(value) <= WORDS else value[: WORDS - 2] + ".."
    if isinstance(value, dict):
        return {name: cut(part) for name, part in value.items()}
    return [cut(part) for part in value] if isinstance(value, list | tuple) else value


def unpacked(data: bytes) -> tuple[Diagnosis, str]:
    """Diagnosis and traceback in what `packed` made; ValueError for anything else."""
    start = HEAD + int.from_bytes(data[:HEAD], "big")
    try:
        whole = json.loads(data[HEAD:start], parse_constant=refused)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    shape = FIELDS | {"traceback": str}
    known = has_shape(whole, shape) and whole["verdict"] in EXIT
    if not known or len(whole) != len(shape):
        raise ValueError("no diagnosis")
    for row in whole["trace"]:
        if not has_shape(row, ROW):
            raise ValueError("no row of a trace")
        if "values" in row:
            row["values"] = tensor_of(memoryview(data)[start:], row)
            start += row["values"].nbytes
    traceback = whole.pop("traceback")
    return Diagnosis(**whole), traceback


def refused(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def tensor_of(data: memoryview, row: dict[str, Any]) -> torch.Tensor:
    """The tensor at the start of `data`; ValueError where none of that shape is."""
    kind, shape = str(row["values"]), row["shape"]
    if kind not in TYPES:
        raise ValueError("no type of numbers")
    size = math.prod(shape) * TYPES[kind].itemsize
    part = bytes(data[: max(size, 0)])
    if len(part) != size:
        raise ValueError("a tensor cut short")
    if kind == "torch.bool" and part.translate(None, b"\0\1"):
        raise ValueError("a truth value of neither kind")
    try:
        if not part:
            return torch.empty(shape, dtype=TYPES[kind])
        return torch.frombuffer(bytearray(part), dtype=TYPES[kind]).reshape(shape)
    except (RuntimeError, OverflowError) as error:
        raise ValueError(str(error)) from None


def has_shape(value: Any, shape: dict[str, Any]) -> bool:
    """Whether a value is a dict that has these keys with values of these types."""
    return isinstance(value, dict) and all(
        name in value and fits(value[name], kind) for name, kind in shape.items()
    )


def fits(value: Any, kind: Any) -> bool:
    """Whether what JSON holds is of a type: of its own, a list, a dict, or any."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(fits(value, part) for part in parts)
    if origin is list:
        return isinstance(value, list) and all(fits(part, parts[0]) for part in value)
    if origin is dict:
        return isinstance(value, dict) and all(
            fits(part, parts[1]) for part in value.values()
        )
    if kind is float:
        return type(value) in (int, float)
    if type(value) is str and len(value) > WORDS:
        return False
    return kind is Any or type(value) is (NoneType if kind is None else kind)
