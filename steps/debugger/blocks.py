"""The other classes of the file: blocks and models around the attention."""

import ast
import contextlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from steps.debugger.arguments import Sizes, meaning, plain
from steps.debugger.around import (
    Block,
    holds,
    lost_context,
    lost_result,
    mask_lost,
    mixed_tokens,
)
from steps.debugger.build import build, make_lazy, prepare
from steps.debugger.file import File
from steps.debugger.load import classes_in, first_line, unless_memory
from steps.debugger.residual import PASSES, Form, Found, Unjudged, fault_in, relation
from steps.debugger.result import Diagnosis
from steps.debugger.watch import Sums, Watched, with_result
from steps.errors import UserError
from steps.pytorch import nn, torch
from steps.walk.recorder import tensors_in

# ---------------------------------------------------------------- which


def examine_blocks(module: ModuleType, chosen: type, result: Diagnosis) -> Diagnosis:
    """Examine every class of the file that holds the attention class `chosen`.

    result: what was found of that class; the fault of a block takes its place.
    """
    blocks = []
    wrong = result.verdict == "fault"  # then the attention is to be mended first
    left: dict[type, str] = {}
    for cls in [chosen] if wrong else classes_in(module):
        try:
            block = made(cls, chosen, module, File(result.file))
        except Exception as error:
            unless_memory(error)
            why = str(error) if isinstance(error, UserError) else first_line(error)
            left[cls] = f"{cls.__name__}: {why}"
            continue
        if block is not None:
            blocks.append(block)
    if wrong:
        left = {}
    inside = {chosen, *(type(m) for block in blocks for m in block.module.modules())}
    result.not_tried += [why for cls, why in left.items() if cls not in inside]
    blocks.sort(key=lambda block: len(list(block.module.modules())))
    read: set[type] = set()
    for block in blocks:
        said, fault = examine_block(block, read)
        if fault is not None:
            fault.examined = f"{block.built.how}, with {chosen.__name__} inside"
            return fault
        result.tried += [said] if said else []
        if block.unjudged:
            result.not_tried.append(f"{block.name}: {block.unjudged}")
    return result


def given_parts(cls: type, chosen: type, file: ModuleType) -> dict[str, nn.Module]:
    """The layers that a constructor asks for by names such as attn and feed_forward."""
    sizes = Sizes(d_in=Sizes().d_out)
    width = sizes.d_out
    found: dict[str, nn.Module] = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        letters = plain(name)
        if parameter.default is not parameter.empty or meaning(name) is not None:
            continue
        if "attn" in letters or "attention" in letters:
            found[name] = build(chosen, sizes).module
        elif letters in FEED_FORWARD:
            own = (c for c in classes_in(file) if plain(c.__name__) in FEED_FORWARD)
            layers = nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)
            made = next((build(c, sizes).module for c in own), None)
            found[name] = made or nn.Sequential(*layers)
    return found


FEED_FORWARD = (
    *("feedforward", "ff", "ffn", "mlp", "feedforwardnetwork", "feedfwd"),
    *("positionwisefeedforward", "positionwisefeedforwardnetwork", "ffwd", "ffnet"),
)


def made(cls: type, chosen: type, names: ModuleType, file: File) -> Block | None:
    """The class made, where it holds the attention; None where it does not."""
    from steps.debugger.examine import fitted

    parts = given_parts(cls, chosen, names) if cls is not chosen else {}
    built = build(cls, Sizes(), parts)
    module = built.module
    inner = [
        m
        for m in module.modules()
        if m is not module and isinstance(m, (chosen, nn.MultiheadAttention))
    ]
    own = not any(isinstance(m, nn.MultiheadAttention) for m in inner)
    if not inner or (issubclass(chosen, cls) and own):
        return None
    if cls is not chosen and any(
        isinstance(m, cls) for c in inner for m in c.modules()
    ):
        return None
    built = fitted(cls, built)
    module = built.module
    x = torch.zeros(built.sizes.B, built.sizes.T, built.sizes.d_in).double()
    make_lazy(module, x, built.sizes.D)
    prepare(module)
    block = Block(module, built, file, chosen, [])
    kinds = {type(m) for m in module.modules() if holds(m, block)}
    block.outer = [m for m in module.modules() if type(m) in kinds]
    return block


# ---------------------------------------------------------------- one block


def examine_block(block: Block, read: set[type]) -> tuple[str, Diagnosis | None]:
    """(what was tried, the fault) of a block; `read`: the classes of a known form."""
    x = block.x()
    seen = block.run(x)
    if seen.error is not None:
        vocabulary = [
            m.num_embeddings
            for m in block.module.modules()
            if isinstance(m, nn.Embedding)
        ]
        if vocabulary:
            block.ids = min(vocabulary)
            x = block.x()
            seen = block.run(x)
    if seen.error is not None:
        return raised(block, seen, x)
    said = [f"{block.name} runs"]
    found = (
        mixed_tokens(block, seen, x)
        or lost_result(block, seen, x)
        or lost_context(block, seen, x)
        or mask_lost(block, seen, x)
    )
    if found is None:
        try:
            found = residuals(block, seen, read, said)
        except Unjudged as why:
            block.unjudged = str(why)
    if found is None:
        return "; ".join(said), None
    fault = block.file.fault(found.place, found.kind, found.message, found.got)
    if found.expected:
        fault.proof = f"it was run so; it had to make {found.expected}."
    return "", fault


def residuals(
    block: Block, seen: Watched, read: set[type], said: list[str]
) -> Found | None:
    """What is wrong with the block's sums and norms."""
    if any(type(m) in read for m in block.outer):
        return None
    form = form_of(block, seen)
    found = fault_in(form, mentioned(block))
    if found is not None:
        if right_otherwise(block):
            raise Unjudged("another setting of one of its switches is right")
        return found
    if not all(relation(form, unit) in PASSES for unit in form.units):
        raise Unjudged("its sums are of no known form")
    read.add(type(block.module))
    said.append(form.said(form.output))
    return None


def form_of(block: Block, seen: Watched) -> Form:
    """The form of a run; of a model from its first layer on."""
    if block.ids:
        first = next((p for p in seen.parts if p.kind in ("norm", "attention")), None)
        if first is None or first.read is None:
            raise Unjudged("its first layer reads no vectors")
        seen.x = first.read
    return Form(seen, Sums(seen))


def mentioned(block: Block) -> set[str]:
    """The attributes that methods of the block mention outside its constructor."""
    names: set[str] = set()
    for module in block.outer:
        for function in block.file.functions(module):
            if function.name != "__init__":
                names |= set(function_names(function))
    return names


def function_names(function: Any) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value  # getattr(self, "norm1")


def right_otherwise(block: Block) -> bool:
    """Whether with a switch of the block turned the form has no fault."""
    for module in block.outer:
        for name, value in list(vars(module).items()):
            if not isinstance(value, bool) or name == "training":
                continue
            setattr(module, name, not value)
            try:
                seen = block.run(block.x())
                if seen.error is None:
                    form = form_of(block, seen)
                    if fault_in(form, mentioned(block)) is None:
                        return True
            except Unjudged:
                return True
            finally:
                setattr(module, name, value)
    return False


# ---------------------------------------------------------------- what raised


def raised(
    block: Block, seen: Watched, x: torch.Tensor
) -> tuple[str, Diagnosis | None]:
    """The block raised although its attention runs: a fault if that can be shown."""
    error = seen.error
    assert error is not None
    for part in seen.parts:
        several = isinstance(part.result, tuple | list | dict)
        if part.kind == "attention" and several and part.made is not None:
            with with_first(block):
                mended = block.run(x)
            if mended.error is None or past(mended, seen):
                kind = type(part.result).__name__
                message = (
                    f"{part.path} returns a {kind}, and it is used as if it were one "
                    f"tensor: {first_line(error)}. With its first tensor alone the "
                    "block goes on."
                )
                return "", block.file.fault(
                    part.place,
                    "residual",
                    message,
                    f"a {kind}",
                    seen_at=seen.place.line if seen.place else None,
                )
    *_, made_up = block.given(x)
    names = "|".join({type(m).__name__ for m in block.module.modules()})
    own = type(error) is NameError or re.match(
        rf"'({names})' object has no attribute", str(error)
    )
    if own and not made_up and seen.place is not None:
        return "", block.file.fault(
            seen.place, "block", f"forward raises {first_line(error)}."
        )
    return "", None


def past(mended: Watched, seen: Watched) -> bool:
    return len(mended.parts) > len(seen.parts)


@contextlib.contextmanager
def with_first(block: Block) -> Iterator[None]:
    """Inside, every attention returns the first tensor of what it returns."""

    def first(result: Any) -> Any:
        return next(tensors_in(result), result)

    with contextlib.ExitStack() as stack:
        for module in block.module.modules():
            if block.is_attention(module):
                stack.enter_context(with_result(module, first))
        yield
