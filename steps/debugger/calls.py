"""The ways in which a module's forward may have to be called."""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from steps.debugger.arguments import plain
from steps.debugger.load import first_line
from steps.errors import UserError
from steps.pytorch import nn, torch


@dataclass(frozen=True)
class Call:
    """What the reader says that forward is given: the text between its parentheses.

    In it x is the input (B, T, d_in), B and T are its sizes, torch is torch, and
    `names` are the file's own.
    """

    text: str
    names: Mapping[str, Any]

    def __post_init__(self) -> None:
        try:
            found = ast.parse(f"f({self.text}\n)", mode="eval").body
        except (SyntaxError, ValueError):
            found = None
        if not isinstance(found, ast.Call) or not isinstance(found.func, ast.Name):
            raise UserError(
                f"--call: {self.text!r} is not what stands between the parentheses of "
                'a call, such as "x, mask=None"'
            )

    def arguments(self, x: torch.Tensor) -> tuple[tuple, dict[str, Any]]:
        """(args, kwargs) for this x, the same random numbers every time."""
        B, T = (x.shape[0] if x.dim() == 3 else 1), x.shape[-2]
        known = {**self.names, "torch": torch, "x": x, "B": B, "T": T}
        known["f"] = lambda *args, **kwargs: (args, kwargs)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(3)
            try:
                args, kwargs = eval(f"f({self.text}\n)", known)
            except (Exception, SystemExit) as error:
                raise UserError(
                    f"--call: {self.text!r} raises {first_line(error)}"
                ) from None

        def like_x(value: Any) -> Any:  # numbers as the module's own, float64 mostly
            floating = isinstance(value, torch.Tensor) and value.is_floating_point()
            return value.to(x.dtype) if floating else value

        return (
            tuple(map(like_x, args)),
            {name: like_x(value) for name, value in kwargs.items()},
        )


NO_CAUSAL_MASK = re.compile(r"pad|head|context|encoder|memory|cross|use")


def is_mask(name: str) -> bool:
    """Whether a parameter of forward takes a mask over pairs of tokens, by its name."""
    letters = plain(name)
    return "mask" in letters and not NO_CAUSAL_MASK.search(letters)


TOKENS = re.compile(
    r"t|s|l|sq|len|length|tokens|(seq|sequence|tgt|src|query|q|num|n|target|source)_?"
    r"(len|length|tokens|size)?(_q)?|time|steps|timesteps"
)
SEQUENCES = re.compile(r"b|bs|bsz|batch|batches|(n|num)?_?batch(es)?(_size)?|mb_size")
SAYS = re.compile(r"\btime\s*x\s*batch|[(\[]\s*seq\w*\s*,\s*batch\w*\s*,", re.I)


def says_tokens_first(module: nn.Module) -> bool:
    """Whether forward names the axes of its input (tokens, sequences, features)."""
    try:
        source = textwrap.dedent(inspect.getsource(type(module).forward))
        tree = ast.parse(source).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return False
    if not isinstance(tree, ast.FunctionDef):
        return False
    said = (ast.get_docstring(tree) or "") + (type(module).__doc__ or "")
    if SAYS.search(said):
        return True
    inputs = {a.arg for a in (*tree.args.args, *tree.args.kwonlyargs)}
    for statement in tree.body:
        if not isinstance(statement, ast.Assign):
            continue
        target, value = statement.targets[0], statement.value
        owner = value.func if isinstance(value, ast.Call) else value
        if (
            isinstance(target, ast.Tuple)
            and len(target.elts) == 3
            and isinstance(owner, ast.Attribute)
            and owner.attr in ("shape", "size")
            and isinstance(owner.value, ast.Name)
            and owner.value.id in inputs
        ):
            names = [e.id.lower() for e in target.elts if isinstance(e, ast.Name)]
            return (
                len(names) == 3
                and TOKENS.fullmatch(names[0]) is not None
                and SEQUENCES.fullmatch(names[1]) is not None
            )
        for name in ast.walk(target):
            if isinstance(name, ast.Name):
                inputs.discard(name.id)  # from here on it is another tensor
    return False


# Parameters of forward that are given angles, as rotary positions need them.
PAIR = ("positionembeddings", "rope", "rotary", "freqs")  # cosines and sines together
ONE = ("cos", "sin", "freqscos", "freqssin", "ropecos", "ropesin")
COMPLEX = ("freqscis",)
ANGLES = (*PAIR, *ONE, *COMPLEX)
STARTS = ("startpos", "offset", "startindex", "pastlength", "pastlen", "curpos")
POSITIONS = (
    *("positionids", "inputpos", "positions", "cacheposition", "position"),
    *("posids", "tokenpositions"),
)
NOTHING = re.compile(r"lens?$|lengths?$|cache|past")  # None, if it is wanted at all
CONTEXT = re.compile(
    r"context|memory|(encoder|cross|source|src|enc)(hidden)?(states?|outputs?|out|x)?"
    r"|kv|keyvaluestates|other|y"
)
SWITCHES = ("iscausal", "causal", "usecausalmask", "causalmask")


def invented(module: nn.Module) -> list[str]:
    """The required parameters of forward for which angles are made up."""
    return [
        p.name
        for p in parameters_of(module)
        if p.default is p.empty and plain(p.name) in ANGLES
    ]


def parameters_of(module: nn.Module) -> list[inspect.Parameter]:
    """The parameters of forward; of **kwargs the keys that its text reads."""
    try:
        found = list(inspect.signature(module.forward).parameters.values())
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    if found and all(p.kind in kinds for p in found):
        star = next((p for p in found if p.kind is p.VAR_KEYWORD), None)
        if star is not None:
            return [*found, *keys_read(module, star.name)]
    return found


def keys_read(module: nn.Module, name: str) -> list[inspect.Parameter]:
    """A parameter for each key of the dictionary `name` that forward reads."""
    try:
        source = textwrap.dedent(inspect.getsource(type(module).forward))
        tree = ast.parse(source)
    except (OSError, TypeError, SyntaxError):
        return []
    found: dict[str, bool] = {}  # key: whether it is wanted
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(ast.Name(owner), ast.Constant(str(key))):
                wanted = True
            case ast.Call(
                ast.Attribute(ast.Name(owner), "get" | "pop" as how),
                [ast.Constant(str(key)), *more],
            ):
                wanted = how == "pop" and not more
            case _:
                continue
        if owner == name:
            found[key] = found.get(key, False) or wanted
    kind, empty = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
    return [
        inspect.Parameter(key, kind, default=empty if wanted else None)
        for key, wanted in found.items()
    ]


def angles(letters: str, x: torch.Tensor, D: int, pairs: bool) -> Any:
    """Angles by which to turn queries and keys of width D, in the form of a name.

    pairs: complex numbers as two real ones each.
    """
    half = torch.arange(D // 2) / D
    turns = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] / 10**half
    if letters in COMPLEX:
        units = torch.polar(torch.ones_like(turns), turns)
        return torch.view_as_real(units).to(x.dtype) if pairs else units
    if not letters.startswith("freqs") or letters in PAIR:
        turns = torch.cat((turns, turns), -1)
    if letters in PAIR:
        turns = turns[None]
        return turns.cos().to(x.dtype), turns.sin().to(x.dtype)
    return (turns.cos() if "cos" in letters else turns.sin()).to(x.dtype)


Make = Callable[[torch.Tensor], Any]  # what a parameter is given, for an x


@dataclass(frozen=True)
class Mask:
    """A causal mask that forward is given."""

    name: str  # of the parameter
    shape: tuple[int, ...]  # for the x of the examination
    as_numbers: bool  # 1 and 0, which neither hide by themselves nor by adding


@dataclass(frozen=True)
class Way:
    """One way to call forward: what each parameter is given."""

    makes: dict[str, Make] = field(default_factory=dict)
    shown: dict[str, str] = field(default_factory=dict)  # what is said of each
    mask: Mask | None = None
    switched: bool = False  # a switch such as is_causal is on
    made_up: tuple[str, ...] = ()  # what is given neither x nor a mask
    last_resort: bool = False  # only where forward raises without it

    @property
    def said(self) -> str:
        return ", ".join(self.shown.values())

    def giving(self, name: str, make: Make, shown: str, **more: Any) -> "Way":
        """The same with one parameter more, or given another value."""
        return replace(
            self,
            makes={**self.makes, name: make},
            shown={**self.shown, name: shown},
            **more,
        )

    def arguments(self, module: nn.Module, x: torch.Tensor) -> tuple[tuple, dict]:
        """(args, kwargs) for this x."""
        return arranged(module, {name: make(x) for name, make in self.makes.items()})


def arranged(module: nn.Module, values: dict[str, Any]) -> tuple[tuple, dict]:
    """Values by parameter as (args, kwargs): by position as far as that goes."""
    parameters = parameters_of(module)
    if not parameters:
        return tuple(values.values()), {}
    args: list[Any] = []
    kwargs = dict(values)
    for p in parameters:
        if p.kind is p.VAR_POSITIONAL and p.name in kwargs:
            given = kwargs.pop(p.name)
            args += given if isinstance(given, tuple) else [given]
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.KEYWORD_ONLY):
            continue
        if p.name not in kwargs or p.default is not p.empty:
            break
        args.append(kwargs.pop(p.name))
    for p in parameters:
        if p.kind is p.VAR_KEYWORD:
            kwargs |= kwargs.pop(p.name, {})
    return tuple(args), kwargs


def itself(x: torch.Tensor) -> torch.Tensor:
    return x


def always(value: Any) -> Make:
    return lambda x: value


def ways_to_call(
    module: nn.Module, x: torch.Tensor, D: int, use_masks: bool
) -> Iterator[Way]:
    """Ways to call forward, the plainest first.

    D: the width of a head, for angles. use_masks: also with causal masks, in every form
    that its parameter for one may ask for.
    """
    for pairs in (False, True)[: 2 if any("cis" in n for n in invented(module)) else 1]:
        base = plainest(module, D, pairs)
        name = mask_parameter(module)
        mask = next((p for p in parameters_of(module) if p.name == name), None)
        if mask is None:
            yield base
        else:
            yield from masked_ways(base, mask, x, use_masks)
        spare = with_all_known(module, base, D, pairs)
        if spare is not None:
            yield spare


def takes_context(module: nn.Module) -> bool:
    """Whether forward has a parameter for what keys and values are made of."""
    return any(CONTEXT.fullmatch(plain(p.name)) for p in parameters_of(module))


def mask_parameter(module: nn.Module) -> str | None:
    """The parameter of forward that takes a mask over pairs of tokens, by its name."""
    for p in parameters_of(module):
        if is_mask(p.name) and not isinstance(p.default, bool):
            return p.name
    return None


def plainest(module: nn.Module, D: int, pairs: bool) -> Way:
    """x for every input, nothing that is optional, switches for a causal mask on."""
    way, mask = Way(), mask_parameter(module)
    parameters = parameters_of(module)
    for p in parameters:
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) or p.name == mask:
            continue
        letters, switch = plain(p.name), isinstance(p.default, bool)
        if letters in SWITCHES[:2] and switch:
            way = way.giving(p.name, always(True), f"{p.name}=True", switched=True)
        elif p.default is p.empty:
            way = with_value(way, p.name, letters, D, pairs)
    star = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    if star is not None and itself not in way.makes.values():
        way = replace(
            way, makes={star: itself, **way.makes}, shown={star: "x", **way.shown}
        )
    return way if parameters else Way({"": itself}, {"": "x"})


def with_value(way: Way, name: str, letters: str, D: int, pairs: bool) -> Way:
    """A way that also gives a parameter what its name asks for."""
    made_up = (*way.made_up, name)
    if letters in ANGLES:

        def turning(x: torch.Tensor) -> Any:
            return angles(letters, x, D, pairs)

        return way.giving(name, turning, f"{name}=...", made_up=made_up)
    if letters in (*STARTS, "layeridx"):
        return way.giving(name, always(0), f"{name}=0", made_up=made_up)
    if letters in POSITIONS:

        def counting(x: torch.Tensor) -> torch.Tensor:
            return torch.arange(x.shape[-2])[None]

        return way.giving(name, counting, f"{name}=...", made_up=made_up)
    if "mask" in letters or NOTHING.search(letters):
        return way.giving(name, always(None), f"{name}=None", made_up=made_up)
    return way.giving(name, itself, "x")


def with_all_known(module: nn.Module, base: Way, D: int, pairs: bool) -> Way | None:
    """A way that also gives the optional contexts, positions and angles."""
    way = base
    for p in parameters_of(module):
        letters = plain(p.name)
        known = letters in (*ANGLES, *POSITIONS) or CONTEXT.fullmatch(letters)
        if p.default is None and p.name not in way.makes and known:
            way = with_value(way, p.name, letters, D, pairs)
    return None if way is base else replace(way, last_resort=True)


def masked_ways(
    base: Way, p: inspect.Parameter, x: torch.Tensor, use_masks: bool
) -> Iterator[Way]:
    """A way without a mask in the parameter for one, and with causal masks."""
    B, T = (x.shape[0] if x.dim() == 3 else 1), x.shape[-2]
    if p.default is p.empty:
        yield base.giving(p.name, always(None), f"{p.name}=None")
        for seen in (True, False):
            for whole in (False, True):  # of padding, where there is none
                make = no_padding(seen, whole)
                yield base.giving(p.name, make, f"{p.name} for no padding")
    else:
        yield base
    if not use_masks:
        return
    for number, (means, _) in enumerate(causal_masks(T, x.dtype)):
        shapes = [(T, T), (1, T, T), (1, 1, T, T), (T, T, 1), (B, T, T), (B, 1, T, T)]
        for which, shape in enumerate(shapes):
            shown = f"{p.name}={'x'.join(map(str, shape))}, {means}"
            told = Mask(p.name, shape, means.startswith("1 where"))
            yield base.giving(p.name, causal_mask(number, which), shown, mask=told)


def no_padding(seen: bool, whole: bool) -> Make:
    """Truth values for each token, all alike; whole: with axes for heads and queries"""

    def make(x: torch.Tensor) -> torch.Tensor:
        B, T = (x.shape[0] if x.dim() == 3 else 1), x.shape[-2]
        row = torch.full((B, T), seen)
        return row[:, None, None] if whole else row

    return make


def causal_mask(number: int, which: int) -> Make:
    """The causal mask of one form and shape, for any x."""

    def make(x: torch.Tensor) -> torch.Tensor:
        B, T = (x.shape[0] if x.dim() == 3 else 1), x.shape[-2]
        mask = causal_masks(T, x.dtype)[number][1]
        if which == 3:
            return mask[..., None].contiguous()
        shape = [(T, T), (1, T, T), (1, 1, T, T), (), (B, T, T), (B, 1, T, T)][which]
        return mask.expand(shape).contiguous()

    return make


def causal_masks(T: int, dtype: torch.dtype) -> list[tuple[str, torch.Tensor]]:
    """A causal mask in every form that a forward may ask for."""
    see = torch.ones(T, T, dtype=torch.bool).tril()
    minus = torch.zeros(T, T, dtype=dtype).masked_fill(~see, -torch.inf)
    return [
        ("True where a token may look", see),
        ("True where it may not", ~see),
        ("-inf where it may not, to be added", minus),
        ("1 where a token may look", see.to(dtype)),
        ("1 where it may not", (~see).to(dtype)),
        ("1 where a token may look", see.long()),
    ]
