"""The ways in which a module's forward may have to be called."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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


# Required parameters of forward that are given angles, as rotary positions need them.
PAIR = ("positionembeddings", "rope", "rotary", "freqs")  # cosines and sines together
ONE = ("cos", "sin", "freqscos", "freqssin", "ropecos", "ropesin")
COMPLEX = ("freqscis",)


def invented(module: nn.Module) -> list[str]:
    """The required parameters of forward for which angles are made up."""
    try:
        parameters = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):
        return []
    return [
        p.name
        for p in parameters
        if p.default is p.empty and plain(p.name) in (*PAIR, *ONE, *COMPLEX)
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


def forwards(
    module: nn.Module, x: torch.Tensor, D: int, use_masks: bool
) -> Iterator[tuple[str, tuple, dict]]:
    """Ways to call forward, the plainest first: (what to say, args, kwargs)."""
    yield from calls(module, x, D, use_masks)
    if any("cis" in name for name in invented(module)):
        yield from calls(module, x, D, use_masks, pairs=True)


def required_value(letters: str, x: torch.Tensor, D: int, pairs: bool) -> Any:
    """What a required parameter of forward is given, by its name."""
    if letters in (*PAIR, *ONE, *COMPLEX):
        return angles(letters, x, D, pairs)
    if letters in ("startpos", "offset", "layeridx"):
        return 0
    if letters in ("positionids", "inputpos", "positions"):
        return torch.arange(x.shape[-2])[None]
    if "mask" in letters or re.search(r"lens?$|lengths?$|cache|past", letters):
        return None
    return x


def calls(
    module: nn.Module, x: torch.Tensor, D: int, use_masks: bool, pairs: bool = False
) -> Iterator[tuple[str, tuple, dict]]:
    """The ways under one form of angles: `pairs` for two real numbers, not complex."""
    try:
        parameters = list(inspect.signature(module.forward).parameters.values())
    except (TypeError, ValueError):
        yield "x", (x,), {}
        return
    B, T = (x.shape[0] if x.dim() == 3 else 1), x.shape[-2]
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    mask_name, mask_required, words = None, False, []
    for p in parameters:
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            continue
        letters, required = plain(p.name), p.default is p.empty
        switch = isinstance(p.default, bool)
        if is_mask(p.name) and not switch and mask_name is None:
            mask_name, mask_required = p.name, required
        elif letters in ("iscausal", "causal") and switch:
            kwargs[p.name] = True
            words.append(f"{p.name}=True")
        elif required:
            value = required_value(letters, x, D, pairs)
            plainly = isinstance(value, int | None)
            shown = f"{p.name}={value if plainly else '...'}"
            words.append("x" if value is x else shown)
            if p.kind is p.KEYWORD_ONLY:
                kwargs[p.name] = value
            else:
                args.append((p.name, value))
    star = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    if star is not None and "x" not in words:  # forward(*args, **kwargs)
        args, words = [*args, (star, x)], ["x", *words]
    position = {p.name: at for at, p in enumerate(parameters)}
    args.sort(key=lambda pair: position[pair[0]])
    plain_args = tuple(value for _, value in args)
    said = ", ".join(words)

    def with_mask(mask: Any) -> tuple[tuple, dict]:
        if not mask_required:
            return plain_args, {**kwargs, mask_name: mask}
        values = [*args, (mask_name, mask)]
        values.sort(key=lambda pair: position[pair[0]])
        return tuple(v for _, v in values), kwargs

    if mask_name is None:
        yield said, plain_args, kwargs
        return
    if mask_required:
        yield f"{said}, {mask_name}=None", *with_mask(None)
        for seen in (torch.ones(B, T).bool(), torch.zeros(B, T).bool()):
            for whole in (seen, seen[:, None, None]):  # of padding, where there is none
                yield f"{said}, {mask_name} for no padding", *with_mask(whole)
    else:
        yield said, plain_args, kwargs
    if use_masks:
        for text, mask in causal_masks(T, x.dtype):
            shapes = [(T, T), (1, T, T), (1, 1, T, T), (T, T, 1), (B, T, T)]
            for shape in (*shapes, (B, 1, T, T)):
                shown = "x".join(map(str, shape))
                last = shape == shapes[3]
                given = mask[..., None] if last else mask.expand(shape)
                yield (
                    f"{said}, {mask_name}={shown}, {text}",
                    *with_mask(given.contiguous()),
                )
