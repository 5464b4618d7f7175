"""From a file or a module to a diagnosis."""

import contextlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from steps.debugger import LONGEST
from steps.debugger.arguments import Sizes, meaning, role_by_words, unfilled
from steps.debugger.blocks import examine_blocks
from steps.debugger.build import Built, build, build_from, hidden_modules
from steps.debugger.calls import Call
from steps.debugger.case import Case, copy_of, make_case
from steps.debugger.contain import contained
from steps.debugger.inputs import arranged
from steps.debugger.load import (
    TooLong,
    TooMuch,
    classes_in,
    ended_by,
    first_line,
    guarded,
    import_file,
    limited,
    ordered,
    rank,
    unless_memory,
)
from steps.debugger.result import Diagnosis
from steps.debugger.run import squares_of, state_of
from steps.debugger.verdict import (
    conclude,
    constructor_raised,
    other_input,
    unwanted_mask,
)
from steps.debugger.ways import RIGHT, best_way, merit
from steps.errors import UserError
from steps.pytorch import nn, torch


@dataclass
class Asked:
    """What the reader says of the examination."""

    causal: bool | None = None  # whether it must be causal; None: what it claims
    quick: bool = False
    call: Call | None = None
    make: Callable[[], nn.Module] | None = None  # makes it anew, where told how

    def examine(
        self, module: nn.Module, file: str, sizes: Sizes, built: Built | None
    ) -> Diagnosis:
        """The diagnosis of a module that was made."""
        case = self.run(module, file, sizes, built)
        return case if isinstance(case, Diagnosis) else conclude(case, self.quick)

    def run(
        self, module: nn.Module, file: str, sizes: Sizes, built: Built | None
    ) -> Case | Diagnosis:
        """The run to report, or what there is to say of it already."""
        case = make_case(module, file, sizes, built, self.causal, self.call)
        case.make = self.make
        return best_run(case)


def examine_file(
    path: str,
    name: str | None = None,
    expression: str | None = None,
    causal: bool | None = None,
    timeout: float = 30,
    call: str | None = None,
    quick: bool = False,
) -> Diagnosis:
    """Examine a file's attention class, the class `name` or what `expression` makes.

    call: what forward is given, as text; see `steps.debugger.calls.Call`.
    quick: do not look for the change that mends a fault.
    """
    file = Path(path).absolute()

    def find() -> Diagnosis:
        module, problem = import_file(file)
        asked = Asked(causal, quick)
        if call is not None:
            asked.call = Call(call, vars(module))
        if expression is not None:
            built = build_from(expression, vars(module))
            asked.make = lambda: build_from(expression, vars(module))
            result = examine_instance(own_copy(unwrapped(built)), asked, expression)
        elif problem and not classes_in(module):
            raise UserError(problem)
        else:
            result = examine_classes(module, str(file), name, asked)
        if problem:
            result.notes.append(f"Running the file stops early: {problem}.")
        return result

    return guarded(path, timeout, find)


def examine_module(
    module: Any,
    causal: bool | None = None,
    timeout: float = 30,
    call: str | None = None,
    quick: bool = False,
) -> Diagnosis:
    """Examine an instance or a class that lives in this process."""
    cls = module if isinstance(module, type) else type(module)
    if not issubclass(cls, nn.Module):
        raise TypeError(
            f"diagnose takes an nn.Module, an instance or a class, not {cls.__name__}"
        )
    check_seconds(timeout)
    if isinstance(module, nn.Module):
        module = unwrapped(module)
        cls = type(module)
    file = file_of(cls)
    asked = Asked(causal, quick)
    if call is not None:
        names = (
            vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
        )
        asked.call = Call(call, names)
    result = Diagnosis(file, "cannot tell")
    with contained(), torch.inference_mode(False):
        try:
            with limited(timeout):
                if isinstance(module, type):
                    result = examine_class(module, file, asked)
                else:
                    name = type(module).__name__
                    result = examine_instance(own_copy(module), asked, name)
        except (TooLong, TooMuch, UserError) as error:
            result.message = ended_by(error, file, timeout)
        except SystemExit as error:
            result.message = f"it raises {first_line(error)}"
    result.file = file
    return result


def check_seconds(timeout: Any) -> None:
    """Refuse a time limit that is no number above 0."""
    said = f"diagnose takes a timeout in seconds above 0, at most {LONGEST}"
    if not isinstance(timeout, int | float) or isinstance(timeout, bool):
        raise TypeError(f"{said}, not {timeout!r}")
    if not 0 < timeout <= LONGEST:
        raise ValueError(f"{said}, not {timeout!r}")


def unwrapped(module: nn.Module) -> nn.Module:
    """The module inside torch.compile's, DataParallel's or a similar wrapper."""
    parts = module._modules
    while len(parts) == 1 and type(module).__module__.startswith("torch."):
        name, inner = next(iter(parts.items()))
        if name not in ("_orig_mod", "module", "_fsdp_wrapped_module"):
            break
        assert inner is not None
        module, parts = inner, inner._modules
    return module


def own_copy(module: nn.Module) -> nn.Module:
    """A copy to work on, with weights that can be drawn anew on the CPU."""
    if isinstance(module, torch.jit.ScriptModule):
        raise UserError(
            "is a TorchScript module, whose lines cannot be watched: give the module "
            "that torch.jit was given"
        )
    refuse_unhashable(module)
    copied = copy_of(module)
    if any(tensor.is_meta for tensor in copied.buffers()):
        raise UserError(
            "has buffers on the meta device, which have no numbers: make it on the CPU"
        )
    if any(tensor.is_meta for tensor in copied.parameters()):
        for part in copied.modules():  # prepare() draws every weight in any case
            for name, tensor in part._parameters.items():
                if tensor is not None and tensor.is_meta:
                    empty = torch.zeros_like(tensor, device="cpu")
                    part._parameters[name] = nn.Parameter(empty)
    return copied.cpu()


def refuse_unhashable(module: nn.Module) -> None:
    if type(module).__hash__ is None:
        raise UserError(
            f"{type(module).__name__} has an __eq__ and no __hash__, and torch keeps "
            "modules in sets: for a dataclass, @dataclass(eq=False)"
        )


def file_of(cls: type) -> str:
    for base in cls.__mro__:
        forward = vars(base).get("forward")
        code = getattr(inspect.unwrap(forward), "__code__", None) if forward else None
        if code is not None:
            return code.co_filename
    return "?"


def examine_classes(
    module: ModuleType, file: str, name: str | None, asked: Asked
) -> Diagnosis:
    classes = classes_in(module)
    if name is not None:
        cls = getattr(module, name, None)
        if not (isinstance(cls, type) and issubclass(cls, nn.Module)):
            known = ", ".join(c.__name__ for c in classes) or "none"
            raise UserError(f"has no nn.Module class {name!r}; it has: {known}")
        return examine_class(cls, file, asked)
    if not classes:
        raise UserError("has no nn.Module class with a forward at its top level")
    choice = ordered(classes)
    promising = [c for c in choice if rank(c) < 3] or choice
    first: Diagnosis | None = None
    chosen = promising[0]
    problems = []
    for cls in promising:
        try:
            result = examine_class(cls, file, asked)
        except UserError as error:
            problems.append(str(error))
            continue
        if result.verdict != "cannot tell" or rank(cls) == 0:
            first, chosen = result, cls
            break
        if first is None:
            first, chosen = result, cls
    if first is None:
        raise UserError(problems[0])
    first = examine_blocks(module, chosen, first)
    others = [c.__name__ for c in classes if c is not chosen]
    if others:
        first.examined += (
            f"; also in the file: {', '.join(others)} (FILE:CLASS examines another)"
        )
    return first


def examine_class(cls: type, file: str, asked: Asked) -> Diagnosis:
    sizes = Sizes()
    try:
        built = build(cls, sizes)
    except UserError:
        raise
    except Exception as error:
        unless_memory(error)
        other = made_otherwise(cls)
        if other is None:
            names = inspect.signature(cls).parameters
            guessed = next((n for n in names if role_by_words(cls, n)), None)
            if guessed is not None:
                raise unfilled(cls, guessed) from None
            return constructor_raised(cls, file, sizes, error)
        built = other
    if not isinstance(built.module, nn.Module):
        raise UserError(f"{cls.__name__}(...) makes no nn.Module")
    if "_modules" not in vars(built.module):
        raise UserError(
            f"the constructor of {cls.__name__} never calls super().__init__()"
        )
    refuse_unhashable(built.module)
    return examine_built(cls, fitted(cls, built), file, asked)


def made_otherwise(cls: type) -> Built | None:
    """The class made with one width for all."""
    with contextlib.suppress(Exception):
        return build(cls, Sizes(d_in=Sizes().d_out))
    return None


def fitted(cls: type, built: Built) -> Built:
    """What was built, with x as wide as it takes."""
    told = set(built.named.values())
    if not told & {"width", "d_in"}:
        built = at_width_of_layers(cls, built)
    if "width" in told and "d_in" not in told and built.sizes.d_in != built.sizes.d_out:
        built.sizes = replace(built.sizes, d_in=built.sizes.d_out)
    return built


def examine_built(cls: type, built: Built, file: str, asked: Asked) -> Diagnosis:
    case = asked.run(built.module, file, built.sizes, built)
    if not isinstance(case, Diagnosis) and case.run.error is not None:
        case = at_other_widths(cls, built, file, asked) or case
    result = case if isinstance(case, Diagnosis) else conclude(case, asked.quick)
    if result.verdict != "fault":
        return result
    if built.guessed and " raises " in result.message:
        raise unfilled(cls, built.guessed)
    if (
        built.sizes.d_in != built.sizes.d_out
        and "multi_head_attention_forward is given" in result.message
        and "embedding dimension" in result.message
    ):
        square = build(cls, Sizes(d_in=Sizes().d_out))
        result = asked.examine(square.module, file, square.sizes, square)
        result.notes.append(
            "It takes d_in and d_out, and works only where they are equal."
        )
    return result


def at_other_widths(
    cls: type, built: Built, file: str, asked: Asked
) -> Case | Diagnosis | None:
    """The run at other widths, if it is right there: some want one width for all, or
    halves of a head, and halves of halves; ours are no fault of theirs."""
    if built.again is None:
        return None
    ours = Sizes()
    told = set(built.named.values())
    widths = [(16, ours.d_in), (ours.D, ours.d_out), (16, 16 * ours.H)]
    # A class that is told both widths has to work where they differ.
    for D, d_in in widths[: 1 if {"d_in", "d_out"} <= told else None]:
        with contextlib.suppress(Exception):
            other = fitted(cls, build(cls, replace(ours, D=D, d_in=d_in)))
            case = asked.run(other.module, file, other.sizes, other)
            if not isinstance(case, Case) or case.T != ours.T:
                continue
            if merit(case) >= RIGHT:
                case.notes.append(f"At other sizes than {built.how} it runs.")
                return case
    return None


def at_width_of_layers(cls: type, built: Built) -> Built:
    """The class made again for the width that its layers read, told by no argument."""
    outer = [*hidden_modules(built.module), built.module]
    layers = [m for o in outer for m in o.modules() if isinstance(m, nn.Linear)]
    widths = [layer.in_features for layer in layers if layer.in_features]
    if not widths:
        return built
    sizes = replace(built.sizes, d_in=widths[0])
    if {"D", "H"} <= set(built.named.values()) and widths[0] % sizes.H == 0:
        sizes.D = widths[0] // sizes.H
    return build(cls, sizes)


def examine_instance(module: nn.Module, asked: Asked, said: str) -> Diagnosis:
    file = file_of(type(module))
    best: Diagnosis | None = None
    for sizes in sizes_of(module):
        if sizes.T < 2:
            raise UserError(
                "has room for one token only, and one token shows no order: make it "
                "with a longer context"
            )
        case = asked.run(copy_of(module), file, sizes, None)
        right = isinstance(case, Case) and merit(case) >= RIGHT
        if not right and type(module).__module__.startswith("torch."):
            own = (
                f"{type(module).__name__} is PyTorch's own; no line of it is the file's"
            )
            other = other_input(case) if isinstance(case, Case) else ""
            raise UserError(other or own)
        result = case if isinstance(case, Diagnosis) else conclude(case, asked.quick)
        result.examined = result.examined or said
        if result.verdict == "no fault":
            return result
        best = best or result
    if best is None:
        raise UserError("the width of its input could not be found from its layers")
    return best


def sizes_of(module: nn.Module) -> list[Sizes]:
    """Sizes for an instance: its input's width and its heads, read off it."""
    own = vars(module).items()
    numbers = {name: n for name, n in own if type(n) is int and n > 0}
    H = next((n for name, n in numbers.items() if meaning(name) == "H"), 1)
    linear = [part for part in module.modules() if isinstance(part, nn.Linear)]
    widths, squares = widths_of(module), squares_of(module)
    longest = min(squares, default=99)
    result = []
    for width in dict.fromkeys(widths):
        taken = {H, width, *numbers.values()}
        lengths = [t for t in (7, 5, 11, 6, 13, 9, 3, 4, 2) if t <= longest]
        T = next((t for t in lengths if t not in taken), min(longest, 5))
        B = next(b for b in (2, 3, 5) if b != H and b != T)
        out = linear[0].out_features if linear else width
        context = longest if longest < 99 else 13
        sizes = Sizes(B, T, d_in=width, H=H, D=max(out // H, 1), context=context)
        result.append(sizes)
    return result


def widths_of(module: nn.Module) -> list[int]:
    """The widths that the layers and weights of a module take."""
    widths: list[int] = []
    for part in module.modules():
        if isinstance(part, nn.MultiheadAttention):
            widths.append(part.embed_dim)
        if isinstance(part, nn.Linear):
            widths.append(part.in_features)
    for path, tensor in state_of(module).items():
        weight = isinstance(tensor, nn.Parameter) and tensor.dim() >= 2
        if weight and not path.endswith(".weight"):
            widths += [tensor.shape[0], tensor.shape[-1]]
    return widths


def best_run(case: Case) -> Case | Diagnosis:
    """The module run under every way to call it: the best of these runs."""
    case = arranged(case)
    best = best_way(case)
    if not (case.causal or case.undecided) and merit(best) < RIGHT:
        masked = best_way(replace(case, causal=True))
        if merit(masked) >= RIGHT:
            return unwanted_mask(masked)
    return best
