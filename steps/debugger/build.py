"""Make the reader's module, and make it fit for comparison."""

import ast
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from steps.debugger.arguments import Config, Sizes, fill, role_by_words
from steps.debugger.calls import ways_to_call
from steps.debugger.load import first_line
from steps.debugger.run import is_random, state_of
from steps.errors import UserError
from steps.pytorch import nn, torch

LazyModuleMixin = nn.modules.lazy.LazyModuleMixin


@dataclass
class Built:
    """A module made for the probe, and how."""

    module: nn.Module
    sizes: Sizes
    how: str  # the call that made it
    heads_asked: bool  # whether the constructor was told how many heads
    named: dict[str, str] = field(default_factory=dict)  # parameter -> its meaning
    again: Callable[[Sizes], nn.Module] | None = None  # the same with other sizes
    guessed: str = ""  # a parameter whose meaning only the words of its name suggest


def build(cls: type, sizes: Sizes, given: dict[str, Any] | None = None) -> Built:
    """Fill the constructor by the names of its parameters, but for those `given`.

    Raises UserError naming the parameter that could not be filled, or what it raised.
    """
    named: dict[str, str] = {}

    def arguments(wanted: Sizes) -> dict[str, Any]:
        return fill(cls, wanted, named, given)

    filled = arguments(sizes)
    shown = ", ".join(
        f"{k}={v!r}" if not isinstance(v, Config | nn.Module) else f"{k}=..."
        for k, v in filled.items()
    )

    def again(other: Sizes) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(1)
            return cls(**arguments(other))

    if "KV" in named.values():  # two heads of keys: no other axis may be as long
        sizes = replace(sizes, B=3)
    try:
        module = again(sizes)
    except Exception:
        if "**" not in named:
            raise
        raise UserError(
            f"{cls.__name__} reads its config as a whole, and which fields it has is "
            f'not known; say how to make it with --build "{cls.__name__}(...)"'
        ) from None
    heads = "H" in named.values()
    guessed = next((n for n in named if role_by_words(cls, n)), "")
    how = f"{cls.__name__}({shown})"
    return Built(module, sizes, how, heads, named, again, guessed)


def build_from(text: str, names: dict[str, Any]) -> nn.Module:
    """The module that an expression of the reader's makes, in the file's own names."""
    try:
        ast.parse(text, mode="eval")
    except SyntaxError:
        raise UserError(f"--build: {text!r} is not a Python expression") from None
    try:
        made = eval(text, dict(names))
        if isinstance(made, type) and issubclass(made, nn.Module):
            made = made()
    except (Exception, SystemExit) as error:
        raise UserError(f"--build: {text!r} raises {first_line(error)}") from None
    if not isinstance(made, nn.Module):
        raise UserError(
            f"--build: {text!r} makes a {type(made).__name__}, not an nn.Module"
        )
    return made


def make_lazy(module: nn.Module, x: torch.Tensor, D: int) -> None:
    """Let layers that take their sizes from their first input have one."""
    lazy = nn.parameter.is_lazy
    if not any(lazy(p) for p in module.parameters()):
        return
    module.eval()
    plain = x.to(torch.get_default_dtype())
    before = [(part, dict(vars(part))) for part in module.modules()]
    for way in ways_to_call(module, plain, D, True):
        args, kwargs = way.arguments(module, plain)
        with torch.no_grad(), contextlib.suppress(Exception):
            module(*args, **kwargs)
        if not any(lazy(p) for p in module.parameters()):
            break
    for part, held in before:  # what it keeps of a call, such as the weights
        for name, value in list(vars(part).items()):
            if isinstance(value, torch.Tensor) and held.get(name) is not value:
                setattr(part, name, held.get(name))
    for part in module.modules():  # never reached, or never called: as if given x
        if isinstance(part, LazyModuleMixin) and part.has_uninitialized_params():
            with torch.no_grad(), contextlib.suppress(Exception):
                part._infer_parameters(part, (plain,), {})
    if any(lazy(p) for p in module.parameters()):
        raise UserError("has lazy layers, and no call that was tried made them")


def make_plain(module: nn.Module) -> None:
    """Let weights that are computed from others (weight_norm, orthogonal, ...) be
    weights themselves: what attention does with them is the same."""
    parametrize = nn.utils.parametrize
    for part in module.modules():
        if parametrize.is_parametrized(part):
            for name in list(vars(part.parametrizations)["_modules"]):
                parametrize.remove_parametrizations(part, name)
        for remove in (nn.utils.remove_weight_norm, nn.utils.remove_spectral_norm):
            with contextlib.suppress(ValueError):
                remove(part)


def prepare(module: nn.Module, seed: int = 7) -> list[str]:
    """Make a module fit for comparison: eval mode, float64, weights drawn anew.

    Tensors and layers that the module keeps outside its parameters are included; the
    paths of floating ones are returned, for the probe that asks about them.
    """
    make_plain(module)
    module.eval()
    module.double()
    known = {id(t) for t in (*module.parameters(), *module.buffers())}
    hidden = []
    for path, tensor in state_of(module).items():
        if id(tensor) in known:
            continue
        hidden.append(path)
        if tensor.is_floating_point() and tensor.dtype != torch.float64:
            if isinstance(tensor, nn.Parameter):
                tensor.data = tensor.data.double()
            else:
                set_at(module, path, tensor.detach().double())
    for inner in hidden_modules(module):
        inner.eval()
        inner.double()
    generator = torch.Generator().manual_seed(seed)
    for path, tensor in state_of(module).items():
        drawable = isinstance(tensor, nn.Parameter) or (
            path in hidden and tensor.dim() >= 2 and is_random(tensor)
        )
        if not drawable or not tensor.is_floating_point() or tensor.is_meta:
            continue
        draw = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        fan = max(tensor.shape[-1], tensor.shape[0], 1) if tensor.dim() > 1 else 1
        with torch.no_grad():
            if tensor.dim() > 1:
                tensor.copy_(draw * (1.5 / fan**0.5))
            elif is_gain(tensor):
                tensor.copy_(1 + 0.3 * draw)
            else:
                tensor.copy_(0.4 * draw)
    return hidden


def is_gain(tensor: torch.Tensor) -> bool:
    """A norm's gain starts as all ones."""
    return bool((tensor == 1).all())


def hidden_modules(module: nn.Module) -> Iterator[nn.Module]:
    """Layers in plain lists and dicts, which PyTorch does not see."""
    for owner in module.modules():
        for value in vars(owner).values():
            parts = (
                value
                if isinstance(value, list | tuple)
                else value.values()
                if isinstance(value, dict)
                else ()
            )
            for part in list(parts):
                if isinstance(part, nn.Module) and value is not owner._modules:
                    yield part


def owner_of(module: nn.Module, path: str) -> tuple[Any, str]:
    """The object that holds what a path names, and the last name."""
    *way, last = path.split(".")
    owner: Any = module
    for name in way:
        if isinstance(owner, list | tuple):
            owner = owner[int(name)]
        elif isinstance(owner, dict):
            owner = owner[name]
        else:
            owner = getattr(owner, name)
    return owner, last


def set_at(module: nn.Module, path: str, value: Any) -> None:
    owner, last = owner_of(module, path)
    if isinstance(owner, list):
        owner[int(last)] = value
    elif isinstance(owner, dict):
        owner[last] = value
    elif not isinstance(owner, tuple):
        setattr(owner, last, value)
