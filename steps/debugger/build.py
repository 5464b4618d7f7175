# ruff: noqa: E501 - sentences for the reader are kept whole
"""Make the reader's module at sizes that are all distinct, whatever its parameters' names."""

import ast
import contextlib
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from steps.debugger.load import first_line
from steps.debugger.run import state_of
from steps.errors import UserError
from steps.pytorch import nn, torch

LazyModuleMixin = nn.modules.lazy.LazyModuleMixin


@dataclass
class Sizes:
    """What is asked for, all distinct, and no product of two equal to a third."""

    B: int = 2
    T: int = 7
    d_in: int = 11
    H: int = 4
    D: int = 10
    context: int = 13
    p: float = 0.25  # of dropout; at 0.5 one could not tell 1/p from 1/(1-p)
    bias: bool = False

    @property
    def d_out(self) -> int:
        return self.H * self.D


# What a constructor's parameter means, by its name without underscores.
MEANINGS = {
    "d_in": "din dimin indim inputdim dinput infeatures inputsize inputfeatures nin inchannels "
    "indims inputdims inputwidth widthin insize querydim xdim datadim keysize querysize valuesize",
    "d_out": "dout dimout outdim outputdim doutput outfeatures outputsize nout outdims projdim "
    "dattn attndim outputdims outwidth widthout outsize innerdim qkvdim allheadsize",
    "width": "embeddim dmodel nembd nembed dim hiddensize hiddendim embedsize embdim embsize "
    "modeldim width channels nstate embeddingdim numhiddens hiddim emb embeddingsize dims "
    "modelwidth dembed demb embed embedding modelsize dimmodel nembeddings nfeatures features "
    "featuresize featdim hidden nhidden size embeds embeddim numfeatures units c e k dm",
    "H": "numheads nheads heads nhead numattentionheads h nheads headcount numberofheads "
    "headnum attentionheads nattnheads numhead nh numberheads attnheads nattentionheads "
    "numkeyvalueheads numkvheads nkvheads nkvhead numkvgroups nkvgroups kvheads numkvhead nquerygroups numquerygroups",
    "context": "contextlength blocksize maxlen maxseqlen seqlen maxpositionembeddings nctx "
    "ctxlen maxlength contextsize npositions sequencelength maxsequencelength ctx t window "
    "maxcontext maxcontextlength contextlen maxtokens maxpositions maxblocksize context "
    "maxcontextlen numtokens ntokens maxseqlength tmax maxt contextwindow maxtimesteps length "
    "maxsequence supportedcontextlength maxpos seqlength maxlens block",
    "D": "headdim headsize dimhead dhead dk dv dkey dvalue dq headwidth dimperhead sizeperhead "
    "perheaddim headdims dh attentionheadsize keydim valuedim widthperhead headdimension hs kvchannels",
    "p": "dropout drop p dropoutrate attnpdrop attndrop dropoutp pdrop residpdrop prob "
    "dropoutprob residdrop projdrop attndropout residdropout dropprob pdropout attentiondropout "
    "attentionprobsdropoutprob hiddendropoutprob attnprob rate droprate dropoutattn dropoutratio "
    "projdropout resdropout attnp projp residp pattn presid dropoutprobability attnprobdrop dropoutresid",
    "bias": "qkvbias bias usebias biasqkv addbias hasbias attnbias attentionbias qvbias biases "
    "withbias projbias outbias",
    "true": "causal iscausal masked usemask batchfirst isdecoder autoregressive mask applymask "
    "usecausalmask causalmask maskfuture scaleattnweights scaleattn",
    "false": "flash useflash crossattention iscrossattention usecache returnattention qknorm "
    "needweights outputattentions returnweights verbose debug scaleattnbyinverselayeridx "
    "reorderandupcastattn normfirst prenorm kvcache useropeusesdpa training",
    "layer": "layeridx layerid layer idx",
    "eps": "layernormeps layernormepsilon eps rmsnormeps normeps",
}
MEANING = {name: key for key, names in MEANINGS.items() for name in names.split()}


def meaning(name: str) -> str | None:
    """What a parameter's name means: a key of MEANINGS, or None."""
    plain = re.sub(r"[^a-z]", "", name.lower())
    if plain in MEANING:
        return MEANING[plain]
    for end in ("dropout", "pdrop", "dropprob", "dropoutprob"):
        if plain.endswith(end):
            return "p"
    return "bias" if plain.endswith("bias") else None


GUESSES = [
    ({"head", "heads", "nheads"}, {"dim", "dims", "size", "width", "dimension"}, "D"),
    ({"head", "heads", "nheads"}, set(), "H"),
    ({"dropout", "drop"}, set(), "p"),
    ({"bias"}, set(), "bias"),
    ({"idx", "index", "layer", "id"}, set(), "layer"),
    ({"len", "length", "context", "ctx", "positions", "tokens", "seq"}, set(), "context"),
    ({"out", "output"}, set(), "d_out"),
    ({"in", "input"}, set(), "d_in"),
    (
        {"embed", "embedding", "emb", "model", "hidden", "width", "dim", "dims"}
        | {"dimension", "dimensions", "channels", "features", "size", "e"},
        set(),
        "width",
    ),
]  # fmt: skip


def guess(name: str) -> str | None:
    """The meaning that the words of an unknown name suggest, for a required parameter."""
    words = {w.lower() for w in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}
    for some, also, what in GUESSES:
        if words & some and (not also or words & also):
            return what
    return None


def value_for(what: str, sizes: Sizes) -> Any:
    fixed = {
        "true": True,
        "false": False,
        "layer": 0,
        "eps": 1e-5,
        "width": sizes.d_out,
    }
    return fixed[what] if what in fixed else getattr(sizes, what)


class Config(dict):
    """A config object that answers to any usual name, as attribute or key."""

    def __init__(self, sizes: Sizes, asked: dict[str, str]) -> None:
        super().__init__()
        self._sizes = sizes
        self._asked = asked

    def _find(self, name: str) -> Any:
        if dict.__contains__(self, name):
            return dict.__getitem__(self, name)
        what = meaning(name)
        if name.strip("_") == "attn_implementation":
            return "eager"
        if what is None:
            raise KeyError(name)
        self._asked[name] = what
        return value_for(what, self._sizes)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self._find(name)
        except KeyError:
            raise AttributeError(f"the config has no {name!r}") from None

    def __missing__(self, name: str) -> Any:
        return self._find(name)

    def keys(self) -> Any:
        self._asked["**"] = "all"  # read as a whole: which fields it has is not known
        return super().keys()

    def items(self) -> Any:
        self._asked["**"] = "all"
        return super().items()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self._find(name)
        except KeyError:
            return default

    def __contains__(self, name: object) -> bool:
        return dict.__contains__(self, name) or (
            isinstance(name, str) and meaning(name) is not None
        )


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


def build(cls: type, sizes: Sizes) -> Built:
    """Fill the constructor by the names of its parameters.

    Raises UserError naming the parameter that could not be filled, or what it raised.
    """
    named: dict[str, str] = {}

    def arguments(wanted: Sizes) -> dict[str, Any]:
        return fill(cls, wanted, named)

    filled = arguments(sizes)
    shown = ", ".join(
        f"{k}={v!r}" if not isinstance(v, Config) else f"{k}=..."
        for k, v in filled.items()
    )

    def again(other: Sizes) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(1)
            return cls(**arguments(other))

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


def role_by_words(cls: type, name: str) -> bool:
    """Whether a parameter has a meaning only by the words in its name."""
    parameter = inspect.signature(cls).parameters.get(name)
    return (
        parameter is not None
        and parameter.default is parameter.empty
        and meaning(name) is None
        and guess(name) not in (None, "H", "p", "bias")
        and len(re.sub(r"[^a-z]", "", name.lower())) > 1
    )


def unfilled(cls: type, name: str) -> UserError:
    return UserError(
        f"cannot fill the parameter {name!r} of {cls.__name__}; "
        f'say how to make it with --build "{cls.__name__}(...)"'
    )


def fill(cls: type, sizes: Sizes, named: dict[str, str]) -> dict[str, Any]:
    """Arguments of the constructor, by keyword."""
    try:
        signature = inspect.signature(cls)
    except (TypeError, ValueError):
        raise UserError(
            f"the constructor of {cls.__name__} has no signature; use --build"
        ) from None
    filled: dict[str, Any] = {}
    parameters = [
        p
        for p in signature.parameters.values()
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    names = [re.sub(r"[^a-z]", "", p.name.lower()) for p in parameters]
    for parameter in parameters:
        name = parameter.name
        required = parameter.default is parameter.empty
        config = config_for(parameter, sizes, named)
        if config is not None:
            filled[name] = config
            continue
        what = role_of(parameter, names)
        if required and name == "device":
            filled[name] = torch.device("cpu")
            continue
        if what is None and required and parameter.annotation not in (str, dict, list):
            what = guess(name)
        if what is None:
            if required:
                raise unfilled(cls, name)
            continue
        if not required and what in ("layer", "eps", "false"):
            continue
        value = value_for(what, sizes)
        if what == "p" and isinstance(parameter.default, bool):
            continue
        if (
            what in ("true", "bias")
            and not required
            and not isinstance(parameter.default, bool)
        ):
            continue
        if (
            what not in ("true", "bias", "p", "false")
            and parameter.default is None
            and what == "D"
        ):
            continue
        named[name] = what
        filled[name] = value
    return filled


def role_of(parameter: inspect.Parameter, names: list[str]) -> str | None:
    """The meaning of one parameter, given the others' names."""
    what = meaning(parameter.name)
    plain = re.sub(r"[^a-z]", "", parameter.name.lower())
    others = {MEANING[n] for n in names if n in MEANING and n != plain}
    if what in ("p", "H", "D", "context", "width") and isinstance(
        parameter.default, bool
    ):
        return None
    if plain == "k" and "h" in names:
        return "width"
    if plain == "d":
        return "d_in" if "d_out" in others else "width"
    if plain == "n":
        return "context" if "H" in others else "H"
    if (
        plain in ("dim", "querydim", "embed", "embeddim", "nembd", "width", "dmodel")
        and "D" in others
        and "d_in" not in others
    ):
        return "d_in" if "d_out" not in others else "width"
    if what == "width" and "D" in others and "H" not in others and "d_in" not in others:
        return "d_in"
    if what == "d_in" and plain == "querydim" and "width" in others:
        return "d_in"
    if what == "width" and "d_out" in others and "d_in" not in others:
        return "d_in"
    return what


def config_for(
    parameter: inspect.Parameter, sizes: Sizes, named: dict[str, str]
) -> Any:
    """A config object where the parameter is one."""
    plain = parameter.name.lower().strip("_")
    kind = parameter.annotation
    if plain not in (
        "config",
        "cfg",
        "conf",
        "args",
        "hparams",
        "params",
        "settings",
        "c",
        "opt",
        "hps",
    ):
        return None
    if parameter.default is not parameter.empty and parameter.default is not None:
        return None
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        values = {}
        for item in dataclasses.fields(kind):
            what = meaning(item.name)
            if what and item.init:
                values[item.name] = value_for(what, sizes)
                named[item.name] = what
        try:
            return kind(**values)
        except Exception:
            return Config(sizes, named)
    return Config(sizes, named)


def build_from(text: str, names: dict[str, Any]) -> nn.Module:
    """The module that an expression of the reader's makes, in the file's own names."""
    try:
        ast.parse(text, mode="eval")
    except SyntaxError:
        raise UserError(f"--build: {text!r} is not a Python expression") from None
    try:
        made = eval(text, dict(names))
    except Exception as error:
        raise UserError(f"--build: {text!r} raises {first_line(error)}") from None
    if isinstance(made, type) and issubclass(made, nn.Module):
        made = made()
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
    for _, args, kwargs in forwards(module, plain, D, True):
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


def prepare(module: nn.Module, seed: int = 7) -> list[str]:
    """Make a module fit for comparison: eval mode, float64, weights drawn anew.

    Tensors and layers that the module keeps outside its parameters are included; the
    paths of floating ones are returned, for the probe that asks about them.
    """
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
            path in hidden and drawn(tensor)
        )
        if not drawable or not tensor.is_floating_point() or tensor.is_meta:
            continue
        draw = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        fan = max(tensor.shape[-1], tensor.shape[0]) if tensor.dim() > 1 else 1
        with torch.no_grad():
            if tensor.dim() > 1:
                tensor.copy_(draw * (1.5 / fan**0.5))
            elif is_gain(tensor):
                tensor.copy_(1 + 0.3 * draw)
            else:
                tensor.copy_(0.4 * draw)
    return hidden


def drawn(tensor: torch.Tensor) -> bool:
    from steps.debugger.run import is_random

    return tensor.dim() >= 2 and is_random(tensor)


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


NO_CAUSAL_MASK = re.compile(r"pad|head|context|encoder|memory|cross|use")


def is_mask(name: str) -> bool:
    """Whether a parameter of forward, by its name, takes a mask over pairs of tokens."""
    plain = re.sub(r"[^a-z]", "", name.lower())
    return "mask" in plain and not NO_CAUSAL_MASK.search(plain)


TOKENS = re.compile(
    r"t|l|len|length|tokens|(seq|sequence|tgt|src|query|q|num|n|target|source)_?"
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


ANGLES = {
    "positionembeddings": "pair",
    "rope": "pair",
    "rotary": "pair",
    "freqs": "pair",
    "cos": "one",
    "sin": "one",
    "freqscos": "one",
    "freqssin": "one",
    "ropecos": "one",
    "ropesin": "one",
    "freqscis": "complex",
}


def invented(module: nn.Module) -> list[str]:
    """The required parameters of forward for which angles are made up."""
    try:
        parameters = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):
        return []
    return [
        p.name
        for p in parameters
        if p.default is p.empty and re.sub(r"[^a-z]", "", p.name.lower()) in ANGLES
    ]


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
        plain = re.sub(r"[^a-z]", "", p.name.lower())
        required = p.default is p.empty
        value: Any = None
        if is_mask(p.name) and not isinstance(p.default, bool) and mask_name is None:
            mask_name, mask_required = p.name, required
            continue
        if plain in ("iscausal", "causal") and isinstance(p.default, bool):
            kwargs[p.name] = True
            words.append(f"{p.name}=True")
            continue
        if not required:
            continue
        if plain in ("positionembeddings", "rope", "rotary", "freqs"):
            angles = torch.arange(T, dtype=torch.float64)[:, None] / 10 ** (
                torch.arange(D // 2) / D
            )
            both = torch.cat((angles, angles), -1)[None]
            value = (both.cos().to(x.dtype), both.sin().to(x.dtype))
        elif plain in ("cos", "sin", "freqscos", "freqssin", "ropecos", "ropesin"):
            angles = torch.arange(T, dtype=torch.float64)[:, None] / 10 ** (
                torch.arange(D // 2) / D
            )
            both = (
                angles if plain.startswith("freqs") else torch.cat((angles, angles), -1)
            )
            value = (both.cos() if "cos" in plain else both.sin()).to(x.dtype)
        elif plain in ("freqscis",):
            angles = torch.arange(T, dtype=torch.float64)[:, None] / 10 ** (
                torch.arange(D // 2) / D
            )
            value = torch.polar(torch.ones_like(angles), angles)
            if pairs:
                value = torch.view_as_real(value).to(x.dtype)
        elif plain in ("startpos", "offset", "layeridx"):
            value = 0
        elif plain in ("positionids", "inputpos", "positions"):
            value = torch.arange(T)[None]
        elif "mask" in plain or re.search(r"lens?$|lengths?$|cache|past", plain):
            value = None
        else:
            value = x
            words.append("x")
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
