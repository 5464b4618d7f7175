# ruff: noqa: E501 - sentences for the reader are kept whole
"""From a file or a module to a diagnosis."""

import contextlib
import copy
import inspect
import itertools
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from steps.debugger import explain, probes
from steps.debugger.build import (
    Built,
    Sizes,
    build,
    build_from,
    forwards,
    hidden_modules,
    invented,
    is_mask,
    make_lazy,
    meaning,
    prepare,
    role_by_words,
    says_tokens_first,
    unfilled,
)
from steps.debugger.judge import Judgement, judge
from steps.debugger.load import (
    Printed,
    TooLong,
    classes_in,
    contained,
    first_line,
    import_file,
    limited,
    ordered,
    rank,
)
from steps.debugger.result import Diagnosis
from steps.debugger.roles import (
    Heads,
    Projection,
    changed_heads,
    projections,
    readings,
    split,
    token_axes,
)
from steps.debugger.run import Node, Run, depend, is_weight, record, state_of
from steps.errors import UserError
from steps.pytorch import nn, torch


@dataclass
class Case:
    """Everything about the module under examination."""

    module: nn.Module
    file: str
    sizes: Sizes
    built: Built | None
    causal: bool
    claims: bool  # whether it claims to be causal
    undecided: bool  # neither the class nor the reader says whether it should be
    x: torch.Tensor
    hidden: list[str] = field(
        default_factory=list
    )  # tensors outside parameters and buffers
    said: str = "x"  # how forward was called
    how: Any = None  # (args, kwargs) as a function of x
    run: Run | None = None
    other: Run | None = None  # with one number of x changed
    at: tuple[int, int] = (0, 0)  # where
    found: list[Projection] = field(default_factory=list)
    plain: dict[Node, str] = field(default_factory=dict)
    judgement: Judgement | None = None
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    by_caller: bool = False  # whether only a mask that forward is given makes it causal
    takes_mask: bool = False  # whether forward has a parameter for one
    made_up: str = ""  # parameters of forward that were guessed at, such as angles
    tokens_first: bool = False  # its input and output are (tokens, sequences, features)

    def call(self, module: nn.Module, x: torch.Tensor) -> Callable[[], Any]:
        """The forward pass, its arguments made ready before any recorder watches."""
        args, kwargs = self.how(module, x)
        return lambda: module(*args, **kwargs)

    def forward(self, module: nn.Module, x: torch.Tensor) -> Any:
        """What it returns; its first tensor as (sequences, tokens, features)."""
        result = self.call(module, x)()
        return self.turned(result) if self.tokens_first else result

    def turned(self, result: Any) -> Any:
        """A result of forward with its first tensor as (sequences, tokens, ...)."""
        if isinstance(result, tuple | list) and result:
            return (self.turned(result[0]), *result[1:])
        if self.tokens_first and isinstance(result, torch.Tensor) and result.dim() > 2:
            return result.transpose(0, 1)
        return result


def examine_file(
    path: str,
    name: str | None = None,
    expression: str | None = None,
    causal: bool | None = None,
    timeout: float = 30,
) -> Diagnosis:
    """Examine the attention class of a file (or the class `name`, or what `expression` makes)."""
    shown = path
    file = Path(path).absolute()
    result = Diagnosis(shown, "cannot tell")
    broken: Exception | None = None
    with contained(str(file.parent)) as printed:
        try:
            with limited(timeout):
                module, problem = import_file(file)
                if expression:
                    instance = build_from(expression, vars(module))
                    result = examine_instance(
                        instance, str(file), causal, said=expression
                    )
                elif problem and not classes_in(module):
                    raise UserError(problem)
                else:
                    result = examine_classes(module, str(file), name, causal)
                if problem:
                    result.notes.append(f"Running the file stops early: {problem}.")
        except TooLong:
            result = Diagnosis(shown, "cannot tell", message=too_long(timeout))
        except UserError as error:
            result = Diagnosis(shown, "cannot tell", message=str(error))
        except Exception as error:  # ours: the next file is still examined
            broken = error
            result = Diagnosis(
                shown,
                "cannot tell",
                message=f"the debugger failed: {first_line(error)}",
            )
    if broken is not None:
        traceback.print_exception(broken)
    if printed.getvalue():
        result.notes.append(
            "What the file printed while it ran was kept out of this report."
        )
    result.file = shown
    return result


def too_long(timeout: float) -> str:
    return f"did not come back within {timeout:g} seconds (an endless loop?); --timeout gives it more"


def examine_module(
    module: Any, causal: bool | None = None, timeout: float = 30
) -> Diagnosis:
    """Examine an instance or a class that lives in this process."""
    cls = module if isinstance(module, type) else type(module)
    if not issubclass(cls, nn.Module):
        raise TypeError(
            f"diagnose takes an nn.Module, an instance or a class, not {cls.__name__}"
        )
    if isinstance(module, nn.Module):
        module = unwrapped(module)
        cls = type(module)
    file = file_of(cls)
    result = Diagnosis(file, "cannot tell")
    with contained(), torch.inference_mode(False):
        try:
            with limited(timeout):
                if isinstance(module, type):
                    result = examine_class(module, file, causal)
                else:
                    result = examine_instance(
                        own_copy(module), file, causal, type(module).__name__
                    )
        except TooLong:
            result.message = too_long(timeout)
        except UserError as error:
            result.message = str(error)
    result.file = file
    return result


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
    copied = copy.deepcopy(module)
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


def file_of(cls: type) -> str:
    for base in cls.__mro__:
        forward = vars(base).get("forward")
        code = getattr(inspect.unwrap(forward), "__code__", None) if forward else None
        if code is not None:
            return code.co_filename
    return "?"


def examine_classes(
    module: ModuleType, file: str, name: str | None, causal: bool | None
) -> Diagnosis:
    classes = classes_in(module)
    if name is not None:
        cls = getattr(module, name, None)
        if not (isinstance(cls, type) and issubclass(cls, nn.Module)):
            known = ", ".join(c.__name__ for c in classes) or "none"
            raise UserError(f"has no nn.Module class {name!r}; it has: {known}")
        return examine_class(cls, file, causal)
    if not classes:
        raise UserError("has no nn.Module class with a forward")
    choice = ordered(classes)
    promising = [c for c in choice if rank(c) < 3] or choice
    first: Diagnosis | None = None
    chosen = promising[0]
    problems = []
    for cls in promising:
        try:
            result = examine_class(cls, file, causal)
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
    others = [c.__name__ for c in classes if c is not chosen]
    if others:
        first.examined += (
            f"; also in the file: {', '.join(others)} (FILE:CLASS examines another)"
        )
    return first


def examine_class(cls: type, file: str, causal: bool | None) -> Diagnosis:
    sizes = Sizes()
    try:
        built = build(cls, sizes)
    except UserError:
        raise
    except Exception as error:
        equal = Sizes(d_in=sizes.d_out)
        try:
            built = build(cls, equal)
        except Exception:
            names = inspect.signature(cls).parameters
            guessed = next((n for n in names if role_by_words(cls, n)), None)
            if guessed is not None:
                raise unfilled(cls, guessed) from None
            return probes.constructor_raised(cls, file, sizes, error)
    if "_modules" not in vars(built.module):
        raise UserError(
            f"the constructor of {cls.__name__} never calls super().__init__()"
        )
    told = set(built.named.values())
    if not told & {"width", "d_in"}:
        built = at_width_of_layers(cls, built)
    if "width" in told and "d_in" not in told and built.sizes.d_in != built.sizes.d_out:
        built.sizes = replace(built.sizes, d_in=built.sizes.d_out)
    case = make_case(built.module, file, built.sizes, built, causal)
    result = examine(case)
    if result.verdict == "fault" and built.guessed and " raises " in result.message:
        raise unfilled(cls, built.guessed)
    if (
        result.verdict == "fault"
        and built.sizes.d_in != built.sizes.d_out
        and "multi_head_attention_forward is given" in result.message
        and "embedding dimension" in result.message
    ):
        square = build(cls, replace(sizes, d_in=sizes.d_out))
        result = examine(make_case(square.module, file, square.sizes, square, causal))
        result.notes.append(
            "It takes d_in and d_out, and works only where they are equal."
        )
    return result


def at_width_of_layers(cls: type, built: Built) -> Built:
    """The class made again for the width that its own layers read, told by no argument."""
    outer = [*hidden_modules(built.module), built.module]
    layers = [m for o in outer for m in o.modules() if isinstance(m, nn.Linear)]
    widths = [m.in_features for m in layers if m.in_features]
    if not widths:
        return built
    sizes = replace(built.sizes, d_in=widths[0])
    told = set(built.named.values())
    if "D" in told:
        sizes.D = (
            widths[0] // sizes.H
            if "H" in told and widths[0] % sizes.H == 0
            else sizes.D
        )
    again = build(cls, sizes)
    return again


def examine_instance(
    module: nn.Module, file: str, causal: bool | None, said: str
) -> Diagnosis:
    if file == "?" or not file_is_here(module, file):
        file = file_of(type(module))
    best: Diagnosis | None = None
    for sizes in sizes_of(module):
        if sizes.T < 2:
            raise UserError(
                "has room for one token only, and one token shows no order: make it "
                "with a longer context"
            )
        case = make_case(copy.deepcopy(module), file, sizes, None, causal)
        result = examine(case)
        result.examined = result.examined or said
        if result.verdict == "no fault" or (
            case.run is not None and case.run.error is None
        ):
            return result
        best = best or result
    if best is None:
        raise UserError("the width of its input could not be found from its layers")
    return best


def file_is_here(module: nn.Module, file: str) -> bool:
    return file_of(type(module)) == file


def sizes_of(module: nn.Module) -> list[Sizes]:
    """Sizes for an instance: its input's width and its heads, read off it."""
    widths: list[int] = []
    squares: list[int] = []
    for part in module.modules():
        if isinstance(part, nn.MultiheadAttention):
            widths.append(part.embed_dim)
        if isinstance(part, nn.Linear):
            widths.append(part.in_features)
    for path, tensor in state_of(module).items():
        if (
            tensor.dim() >= 2
            and tensor.shape[-1] == tensor.shape[-2]
            and not isinstance(tensor, nn.Parameter)
        ):
            squares.append(tensor.shape[-1])
        if (
            isinstance(tensor, nn.Parameter)
            and tensor.dim() >= 2
            and not path.endswith(".weight")
        ):
            widths += [tensor.shape[0], tensor.shape[-1]]
    numbers = {}
    for name, value in vars(module).items():
        if type(value) is int and value > 0:
            numbers[name] = value
    H = next((v for n, v in numbers.items() if meaning(n) == "H"), 1)
    longest = min(squares, default=99)
    result = []
    for width in dict.fromkeys(widths):
        taken = {H, width, *numbers.values()}
        T = next(
            (
                t
                for t in (7, 5, 11, 6, 13, 9, 3, 4, 2)
                if t <= longest and t not in taken
            ),
            min(longest, 5),
        )
        out = next(
            (p.out_features for p in module.modules() if isinstance(p, nn.Linear)),
            width,
        )
        B = next(b for b in (2, 3, 5) if b != H and b != T)
        result.append(
            Sizes(
                B=B,
                T=T,
                d_in=width,
                H=H,
                D=max(out // H, 1),
                context=longest if longest < 99 else 13,
            )
        )
    return result


def claims_causal(
    module: nn.Module, built: Built | None, T: int, asked: bool = True
) -> bool:
    """Whether the class says, or shows, that a token may not look ahead.

    asked: count it as a claim that forward can be asked for a mask.
    """
    words = " ".join(
        [type(module).__name__, *(type(m).__name__ for m in module.modules())]
    ).lower()
    if any(word in words for word in ("causal", "masked", "decoder", "gpt")):
        return True
    if built is not None and set(built.named.values()) & {"context", "true"}:
        return True
    for path, tensor in state_of(module).items():
        square = (
            tensor.dim() >= 2
            and tensor.shape[-1] == tensor.shape[-2]
            and tensor.shape[-1] >= T
        )
        if square and not isinstance(tensor, nn.Parameter):
            return True
        if "mask" in path.lower():
            return True
    kept = [v for name, v in vars(module).items() if "mask" in name.lower()]
    if any(value is not None and value is not False for value in kept):
        return True
    with contextlib.suppress(TypeError, ValueError):
        for name in inspect.signature(module.forward).parameters:
            if asked and (is_mask(name) or "causal" in name.lower()):
                return True
    return False


def make_case(
    module: nn.Module, file: str, sizes: Sizes, built: Built | None, causal: bool | None
) -> Case:
    generator = torch.Generator().manual_seed(11)
    x = torch.randn(
        sizes.B, sizes.T, sizes.d_in, generator=generator, dtype=torch.float64
    )
    make_lazy(module, x, sizes.D)
    hidden = prepare(module)
    claims = claims_causal(module, built, sizes.T)
    case = Case(
        module,
        file,
        sizes,
        built,
        claims if causal is None else causal,
        claims,
        causal is None and not claims,
        x,
        hidden,
    )
    own = claims_causal(module, built, sizes.T, asked=False)
    case.by_caller = causal is None and claims and not own
    state = state_of(module)
    case.weights = {k: t for k, t in state.items() if is_weight(state, k)}
    return case


def examine(case: Case) -> Diagnosis:
    """Run the module, judge the run under every way to call it, then the other probes."""
    turned = says_tokens_first(case.module) and case.x.dim() == 3
    attempts = attempted(replace(case, tokens_first=True) if turned else case)
    best = best_of(attempts)
    if turned and merit(best) < 10**6:
        plain = attempted(case)
        other = best_of(plain)
        if merit(other) > merit(best):
            best = other
    run = best.run
    if merit(best) < 10**6 and run is not None and run.fused and best.undecided:
        other = best_of(attempted(replace(case, tokens_first=True)))
        if merit(other) >= 10**6 and not other.causal:
            raise UserError(
                "takes the first axis of its input for the tokens: right where x is "
                "(tokens, sequences, features), and wrong where it is (sequences, "
                "tokens, features), for which nn.MultiheadAttention has batch_first=True"
            )
    if run is not None and run.error is not None and best.made_up:
        raise UserError(
            f"forward also wants {best.made_up}, and with what was made up for it "
            f"raises {first_line(run.error)}"
        )
    return conclude(best)


def attempted(case: Case) -> list[Case]:
    """The case judged under each way to call it, up to one that is clean.

    Where only the caller's mask would make it causal, a call without one is judged as
    attention that is not; the masks are tried once that is right.
    """
    attempts: list[Case] = []
    bare: Case | None = None
    fits = ""  # the first shape of a mask with which it did not raise
    before, stuck = "", False  # what it raised without a mask, and so with any
    for case_now in ways(case):
        shape = mask_shape(case_now)
        stuck = stuck and bool(shape)
        if shape and (stuck or (fits and shape != fits)):
            continue
        if shape and not fits and ", 1 where" in case_now.said:
            continue  # no shape fits as booleans, nor as numbers to be added
        run_twice(case_now)
        run = case_now.run
        assert run is not None
        stuck = bool(shape and run.error is not None and str(run.error) == before)
        before = before if shape else str(run.error)
        told = "=True" in case_now.said  # is_causal
        if case_now.takes_mask and not shape and case.by_caller and not told:
            case_now.causal = masks_in(run, case.x.shape[-2])
        if run.error is None:
            fits = fits or shape
        if run.error is None or run.failed is not None or not attempts:
            judge_run(case_now)
            attempts.append(case_now)
            without = case.by_caller and case_now.takes_mask and not case_now.causal
            if without and run.error is None:
                bare = case_now
                if merit(bare) < 10**6:
                    return [bare]
            elif merit(case_now) >= 10**6:
                return [case_now]
    if bare is not None:
        attempts.remove(bare)
        if not any(c.run is not None and c.run.error is None for c in attempts):
            bare.notes.append("No mask that was tried fits its mask argument.")
            return [bare]
    return attempts


def best_of(attempts: list[Case]) -> Case:
    """The attempt to report: the furthest, and rather with a mask than for want of one."""
    masked = [c for c in attempts if mask_shape(c) and c.run and c.run.error is None]
    pool = [c for c in attempts if not lacks_mask(c)] if masked else attempts
    return max(pool, key=merit)


def mask_shape(case: Case) -> str:
    """The shape of the mask that forward was called with, such as "7x7"."""
    found = re.search(r"mask\w*=(\d+(?:x\d+)+)", case.said)
    return found[1] if found else ""


def lacks_mask(case: Case) -> bool:
    """Whether forward takes a mask, was given none, and fails for that alone."""
    judgement = case.judgement
    if judgement is None or judgement.clean or mask_shape(case) or not case.takes_mask:
        return False
    return any("unmasked" in la.stage.name for la in judgement.labels.values()) or bool(
        judgement.fault is not None and judgement.reference.causal and fused(judgement)
    )


def fused(judgement: Judgement) -> bool:
    """Whether the wrong operation makes contexts of queries, keys and values at once."""
    assert judgement.fault is not None
    labels = [judgement.labels.get(n) for n in judgement.fault.inputs]
    names = {label.stage.name.split(",")[0] for label in labels if label is not None}
    return names == {"queries", "keys", "values"}


def merit(case: Case) -> int:
    judgement = case.judgement
    assert case.run is not None
    if judgement is None:
        return 0 if case.run.error is None else -1
    return 10**6 if judgement.clean and not judgement.conflicts else judgement.progress


def ways(case: Case) -> Iterator[Case]:
    """The case, once for each way to call forward."""
    module, sizes = case.module, case.sizes
    forms = list(forwards(module, case.x, sizes.D, case.causal))
    case.made_up = ", ".join(invented(module))
    for number, (said, _, _) in enumerate(forms):

        def how(inner: nn.Module, x: torch.Tensor, number: int = number) -> tuple:
            options = forwards(inner, x, sizes.D, case.causal)
            *_, (_, args, kwargs) = itertools.islice(options, number + 1)
            if case.tokens_first and x.dim() == 3:
                turned = x.transpose(0, 1)
                args = tuple(turned if value is x else value for value in args)
                kwargs = {k: turned if v is x else v for k, v in kwargs.items()}
            return args, kwargs

        made = copy_case(case, said, how)
        made.takes_mask = len(forms) > 1
        yield made


def copy_case(case: Case, said: str, how: Callable) -> Case:
    made = copy.copy(case)
    made.said, made.how = said, how
    made.run = made.other = made.judgement = None
    made.notes = list(case.notes)
    return made


def run_twice(case: Case) -> None:
    """Record a run, and another with one number of x changed and another seed."""

    def once(x: torch.Tensor, seed: int) -> Run:
        torch.default_generator.manual_seed(seed)
        return record(
            case.module,
            case.call(case.module, x),
            x,
            case.file,
            weights=case.weights,
        )

    case.run = once(case.x, 1)
    failed = case.run.error is not None and not mask_shape(case)
    if failed and case.x.dim() == 3 and takes_two(case, once):
        return
    case.other = once(changed(case), 1)


def changed(case: Case) -> torch.Tensor:
    x = case.x.clone()
    case.at = (0, x.shape[1] // 2) if x.dim() == 3 else (0, x.shape[0] // 2)
    if x.dim() == 3:
        x[case.at][x.shape[-1] // 2] += 1.0
    else:
        x[case.at[1], x.shape[-1] // 2] += 1.0
    return x


def takes_two(case: Case, once: Callable) -> bool:
    """Whether the module takes one sequence, (T, d_in), and does so without an error."""
    x = case.x
    first = case.run
    case.x = x[0].clone()
    run = once(case.x, 1)
    if (
        run.error is None
        and run.output is not None
        and run.output.shape[0] == x.shape[1]
        and run.output.dim() == 2
    ):
        case.run = run
        case.other = once(changed(case), 1)
        return True
    case.x, case.run = x, first
    return False


def judge_run(case: Case) -> None:
    run, other = case.run, case.other
    assert run is not None
    assert other is not None
    B = case.x.shape[0] if case.x.dim() == 3 else 1
    T = case.x.shape[-2]
    depend(run, other)
    case.found, case.plain = projections(run, other, B, T, case.at)
    asked = case.sizes.H if case.built is None or case.built.heads_asked else None
    guesses = sorted(
        {
            v
            for m in case.module.modules()
            for v in vars(m).values()
            if type(v) is int and 1 < v <= 64
        }
    )
    if asked is None:
        guesses += [h for h in heads_seen(run, case.found) if h not in guesses]
    if run.error is not None and any(
        re.search(r"\.\d+\.", p.paths[0]) for p in case.found
    ):
        guesses.insert(0, 1)
        if asked:
            guesses.insert(1, asked)
        asked = None
    modes = [case.causal]
    if case.undecided and not masks_in(run, T):
        modes.append(not case.causal)
    elif case.undecided:
        modes = [True]
    best: Judgement | None = None
    inside = probes.mha_heads(case)
    options = (
        [inside] if inside is not None else readings(case.found, asked, guesses, run)
    )
    for count, heads in enumerate(options):
        for causal in modes:
            judgement = judge(
                run,
                heads,
                case.found,
                case.plain,
                causal,
                case.weights,
                case.tokens_first,
            )
            if best is None or key(judgement) > key(best):
                best = judgement
            if judgement.clean and not judgement.conflicts:
                break
        if count > 30 or (best is not None and best.clean and not best.conflicts):
            break
    for heads in without_layer(case) if best is not None and not best.clean else []:
        assert best is not None
        judgement = judge(
            run,
            heads,
            case.found,
            case.plain,
            modes[0],
            case.weights,
            case.tokens_first,
        )
        if judgement.progress > best.progress or judgement.clean:
            best = judgement
    if (
        best is not None
        and best.heads.layout
        and not best.clean
        and no_mixing(case, best)
    ):
        best = None  # one wide layer and no attention after it: no packed q, k and v
    if best is not None and best.fault is not None and before_scores(best):
        changed = changed_heads(run, other, best.heads, case.at)
        for causal in modes if changed is not None else []:
            assert changed is not None
            judgement = judge(
                run,
                changed,
                case.found,
                case.plain,
                causal,
                case.weights,
                case.tokens_first,
            )
            if judgement.clean or judgement.progress >= best.progress:
                best = judgement
                if judgement.clean:
                    break
    case.judgement = best
    if best is not None:
        case.causal = best.reference.causal


def without_layer(case: Case) -> Iterator[Heads]:
    """Two layers and x itself as queries, keys and values."""
    width = case.x.shape[-1]
    H = case.sizes.H
    if len(case.found) != 2 or case.x.dim() != 3 or width % H:
        return
    if any(p.width != width or p.deep for p in case.found):
        return
    x = split(case.x.double(), H)
    for role, others in (("v", "qk"), ("k", "qv"), ("q", "kv")):
        for pair in itertools.permutations(case.found):
            roles = {role: [], **{r: [p] for r, p in zip(others, pair, strict=True)}}
            made = {r: split(ps[0].value, H) if ps else x for r, ps in roles.items()}
            yield Heads(made["q"], made["k"], made["v"], roles)


def heads_seen(run: Run, found: list[Projection]) -> list[int]:
    """Numbers of heads that the shapes of the run speak of: H next to D = width / H."""
    widths = {p.width for p in found} | {p.width // 3 for p in found}
    pairs = {
        pair
        for node in run.nodes
        if node.entry.origin != "computed" and len(node.entry.shape) > 3
        for pair in itertools.pairwise(node.entry.shape)
    }
    return sorted({h for h, d in pairs if h > 1 and d > 1 and h * d in widths})


def no_mixing(case: Case, judgement: Judgement) -> bool:
    """Whether no split of q, k and v was seen and no token's output reads another token."""
    assert case.run is not None
    assert case.other is not None
    projected = {p.node for p in case.found}
    if any(
        la.stage.rank >= 2 for n, la in judgement.labels.items() if n not in projected
    ):
        return False
    out, twin = case.run.output, case.other.output
    if out is None or twin is None or out.shape != twin.shape:
        return False
    B = case.x.shape[0] if case.x.dim() == 3 else 1
    return token_axes(out, twin, B, case.x.shape[-2], case.at) is not None


def before_scores(judgement: Judgement) -> bool:
    """Whether the first wrong operation reads nothing but queries or keys."""
    assert judgement.fault is not None
    labels = [judgement.labels.get(n) for n in judgement.fault.inputs]
    names = {label.stage.name.split(",")[0] for label in labels if label is not None}
    return bool(names) and names <= {"queries", "keys"} and None not in labels


def masks_in(run: Run, T: int) -> bool:
    """Whether forward makes or reads a (T, T) table of few values: a mask."""
    for node in run.nodes:
        tables = [node.value] if not node.uses_x else [t for t, _ in node.constants]
        for table in tables:
            shape = [n for n in table.shape if n != 1]
            if (
                shape == [T, T]
                and not table.is_meta
                and 1 < table.unique().numel() <= 3
            ):
                return True
    return False


def key(judgement: Judgement) -> tuple:
    """The better reading of two: named right, then clean, then further along."""
    if judgement.heads.strided and judgement.progress < 300:
        return (
            -99,
            False,
            0,
            0,
        )  # heads of every H-th feature: only if scores are made of them
    return (-judgement.conflicts, judgement.clean, judgement.progress, judgement.named)


OTHER_INPUTS = {
    "embedding": "token numbers",
    "embedding_bag": "token numbers",
    "one_hot": "token numbers",
    "conv2d": "pictures",
    "conv3d": "pictures",
}


def other_input(case: Case) -> str:
    """What a module takes that fails on vectors at once, and which part could be examined."""
    run = case.run
    assert run is not None
    failed = run.failed
    if failed is None or any(node.params for node in run.nodes):
        return ""
    takes = OTHER_INPUTS.get(getattr(failed[1], "__name__", ""))
    if takes is None:
        return ""
    inside = [n for n, m in case.module.named_modules() if n and rank(type(m)) < 3]
    better = f": {inside[0]!r} can be examined by itself" if inside else ""
    return (
        f"{type(case.module).__name__} takes {takes}, and attention takes a vector for "
        f"each token{better}"
    )


def conclude(case: Case) -> Diagnosis:
    other = other_input(case)
    if other:
        raise UserError(other)
    result = explain.diagnosis(case)
    if result.verdict == "no fault":
        fault = probes.first_fault(case)
        if fault is not None:
            fault.trace, fault.examined = result.trace, result.examined
            explain.mark(fault)
            return fault
        result.notes += probes.proved(case)
    return result


def described(case: Case) -> str:
    how = case.built.how if case.built is not None else type(case.module).__name__
    return f"{how}, called with {case.said}; x of shape {tuple(case.x.shape)}"


__all__ = ["Case", "Printed", "examine_file", "examine_module", "first_line", "sys"]
