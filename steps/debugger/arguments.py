"""What a constructor is given, by the names of its parameters."""

import contextlib
import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from steps.errors import UserError
from steps.pytorch import torch


@dataclass
class Sizes:
    """What is asked for, all distinct, and no product of two equal to a third."""

    B: int = 2
    T: int = 7
    d_in: int = 11
    H: int = 4
    KV: int = 2  # heads of keys and values, where the class lets them be fewer
    D: int = 10
    context: int = 13
    p: float = 0.25  # of dropout; at 0.5 one could not tell 1/p from 1/(1-p)
    bias: bool = False
    d_context: int = 0  # of what keys and values are made of; 0 for as wide as x

    @property
    def d_out(self) -> int:
        return self.H * self.D


# What a constructor's parameter means, by its name without underscores: a field of
# Sizes, its width, or a value that any module can be given.
MEANINGS = {
    "d_in": (
        "din dimin indim inputdim dinput infeatures inputsize inputfeatures nin "
        "inchannels indims inputdims inputwidth widthin insize querydim xdim "
        "datadim keysize querysize valuesize"
    ),
    "d_out": (
        "dout dimout outdim outputdim doutput outfeatures outputsize nout "
        "outdims projdim dattn attndim outputdims outwidth widthout outsize "
        "innerdim qkvdim allheadsize"
    ),
    "width": (
        "embeddim dmodel nembd nembed dim hiddensize hiddendim embedsize embdim "
        "embsize modeldim width channels nstate embeddingdim numhiddens hiddim "
        "emb embeddingsize dims modelwidth dembed demb embed embedding "
        "modelsize dimmodel nembeddings nfeatures features featuresize featdim "
        "hidden nhidden size embeds numfeatures units c e k dm nx numunits "
        "nunits embedsz"
    ),
    "H": (
        "numheads nheads heads nhead numattentionheads h headcount "
        "numberofheads headnum attentionheads nattnheads numhead nh numberheads "
        "attnheads nattentionheads nq nqheads numqheads numqueryheads "
        "nqueryheads"
    ),
    "KV": (
        "numkeyvalueheads numkvheads nkvheads nkvhead numkvgroups nkvgroups "
        "kvheads numkvhead nquerygroups numquerygroups nkv nkvh "
        "kvgroups"
    ),
    "context": (
        "contextlength blocksize maxlen maxseqlen seqlen maxpositionembeddings "
        "nctx ctxlen maxlength contextsize npositions sequencelength "
        "maxsequencelength ctx t maxcontext maxcontextlength contextlen "
        "maxtokens maxpositions maxblocksize context maxcontextlen numtokens "
        "ntokens maxseqlength tmax maxt contextwindow maxtimesteps length "
        "maxsequence supportedcontextlength maxpos seqlength maxlens"
    ),
    "span": "window block windowsize windowlength localwindow",
    "D": (
        "headdim headsize dimhead dhead dk dv dkey dvalue dq headwidth "
        "dimperhead sizeperhead perheaddim headdims dh attentionheadsize keydim "
        "valuedim widthperhead headdimension hs kvchannels rotarydim"
    ),
    "p": (
        "dropout drop p dropoutrate attnpdrop attndrop dropoutp pdrop "
        "residpdrop prob dropoutprob residdrop projdrop attndropout "
        "residdropout dropprob pdropout attentiondropout "
        "attentionprobsdropoutprob hiddendropoutprob attnprob rate droprate "
        "dropoutattn dropoutratio projdropout resdropout attnp projp residp "
        "pattn presid dropoutprobability attnprobdrop dropoutresid"
    ),
    "d_context": (
        "contextdim crossattentiondim crossdim kdim vdim encoderdim encdim memorydim "
        "encoderhiddensize dcontext contextwidth dimcontext kvdim dimkv memdim "
        "encdimension contextsizekv dmemory dencoder"
    ),
    "bias": (
        "qkvbias bias usebias biasqkv addbias hasbias attnbias attentionbias "
        "qvbias biases withbias projbias outbias"
    ),
    "true": (
        "causal iscausal masked usemask batchfirst isdecoder autoregressive "
        "mask applymask usecausalmask causalmask maskfuture scaleattnweights "
        "scaleattn"
    ),
    "false": (
        "flash useflash crossattention iscrossattention usecache "
        "returnattention qknorm needweights outputattentions returnweights "
        "verbose debug scaleattnbyinverselayeridx reorderandupcastattn "
        "normfirst prenorm kvcache useropeusesdpa training multiquery alibi "
        "parallelattn newdecoderarchitecture"
    ),
    "base": "ropetheta ropebase rotaryembbase rotarybase rotaryembeddingbase",
    "whole": "rotarypct partialrotaryfactor rotarypercentage rotaryembpct",
    "layer": "layeridx layerid layer idx",
    "eps": "layernormeps layernormepsilon eps rmsnormeps normeps",
    # Of the blocks and models around attention.
    "vocab": (
        "vocabsize vocab nvocab numvocab vocabulary vocabularysize dvocab vocablen "
        "numembeddings srcvocabsize tgtvocabsize srcvocab tgtvocab vocabsz "
        "inputvocabsize targetvocabsize numclasses nclasses numlabels nclass"
    ),
    "layers": (
        "nlayers numlayers nlayer depth layers numblocks nblocks nblock numlayer "
        "numhiddenlayers nlays numencoderlayers numdecoderlayers"
    ),
    "ff": (
        "dff ffdim mlpdim dimfeedforward feedforwarddim ffndim ffhidden ffnhidden "
        "intermediatesize dmlp dimff ffsize ffnhiddendim mlphidden mlphiddendim dhid "
        "dhidden nhid pfdim feedforwardsize filtersize ffnsize mlpsize ffhiddendim "
        "ffwidth mlpwidth fforwarddim ffinner ffnumhiddens nff nmlp dffn hiddenff "
        "ffnnumhiddens dimmlp feedforwardhidden ffhiddensize mlphiddensize ffdims"
    ),
    "wider": (
        "mlpratio expansion expand expandratio ffmult forwardexpansion mlpexpansion "
        "wideningfactor expansionfactor ffnmult ffexpansion ffratio"
    ),
}
MEANING = {name: key for key, names in MEANINGS.items() for name in names.split()}


def plain(name: str) -> str:
    """A name's letters, in lower case."""
    return re.sub(r"[^a-z]", "", name.lower())


def meaning(name: str) -> str | None:
    """What a parameter's name means: a key of MEANINGS, or None."""
    letters = plain(name)
    if letters in MEANING:
        return MEANING[letters]
    if letters.endswith(("dropout", "pdrop", "dropprob", "dropoutprob")):
        return "p"
    return "bias" if letters.endswith("bias") else None


GUESSES = [
    ({"head", "heads", "nheads"}, {"dim", "dims", "size", "width", "dimension"}, "D"),
    ({"head", "heads", "nheads"}, set(), "H"),
    ({"dropout", "drop"}, set(), "p"),
    ({"bias"}, set(), "bias"),
    ({"idx", "index", "layer", "id"}, set(), "layer"),
    (
        {"len", "length", "context", "ctx", "positions", "tokens", "seq"},
        set(),
        "context",
    ),
    ({"out", "output"}, set(), "d_out"),
    ({"in", "input"}, set(), "d_in"),
    (
        {"embed", "embedding", "emb", "model", "hidden", "width", "dim", "dims"}
        | {"dimension", "dimensions", "channels", "features", "size", "e"},
        set(),
        "width",
    ),
    ({"max"}, set(), "context"),
]  # fmt: skip


def guess(name: str) -> str | None:
    """The meaning that the words of a required parameter's unknown name suggest."""
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
        "base": 10_000.0,  # of rotary positions
        "whole": 1.0,  # all of a head is turned
        "width": sizes.d_out,
        "vocab": 17,
        "layers": 2,
        "ff": sizes.d_out + 32,
        "wider": 2,
        "span": sizes.context,  # how far a token looks: never less than the input
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


def role_by_words(cls: type, name: str) -> bool:
    """Whether a parameter has a meaning only by the words in its name."""
    parameter = inspect.signature(cls).parameters.get(name)
    return (
        parameter is not None
        and parameter.default is parameter.empty
        and meaning(name) is None
        and guess(name) not in (None, "H", "p", "bias")
        and len(plain(name)) > 1
    )


def unfilled(cls: type, name: str) -> UserError:
    return UserError(
        f"cannot fill the parameter {name!r} of {cls.__name__}; "
        f'say how to make it with --build "{cls.__name__}(...)"'
    )


def fill(
    cls: type,
    sizes: Sizes,
    named: dict[str, str],
    given: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Arguments of the constructor, by keyword; in `named`, what each one means.

    given: those that are known, by name.

    Raises UserError naming a required parameter of which nothing is known.
    """
    try:
        signature = inspect.signature(cls)
    except (TypeError, ValueError):
        raise UserError(
            f"the constructor of {cls.__name__} has no signature; use --build"
        ) from None
    parameters = [
        p
        for p in signature.parameters.values()
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    names = [plain(p.name) for p in parameters]
    known = [name for name in names if meaning(name)]
    filled: dict[str, Any] = {}
    for parameter in parameters:
        name = parameter.name
        required = parameter.default is parameter.empty
        config = config_for(cls, parameter, sizes, named, len(known) < 2)
        if given and name in given:
            filled[name] = given[name]
        elif config is not None:
            filled[name] = config
        elif required and name == "device":
            filled[name] = torch.device("cpu")
        else:
            what = role_of(parameter, names)
            if what is None and required and parameter.annotation not in OTHER_KINDS:
                what = guess(name)
            if what is None and required:
                raise unfilled(cls, name)
            if what is not None and (required or replaces(what, parameter.default)):
                named[name] = what
                filled[name] = value_for(what, sizes)
            elif what == "d_context" and sizes.d_context:
                named[name] = what
                filled[name] = sizes.d_context
    own = [v for n, v in filled.items() if named.get(n) in ("d_in", "width")]
    for name in filled:
        if named.get(name) == "d_context" and not sizes.d_context:
            filled[name] = own[0] if own else sizes.d_in
    return filled


OTHER_KINDS = (str, dict, list)  # annotations of what is neither a size nor a rate


AROUND = ("vocab", "layers", "ff", "wider")


def replaces(what: str, default: Any) -> bool:
    """Whether a parameter that has a default is given a value all the same."""
    left = ("layer", "eps", "base", "whole", "span", "false", "d_context", *AROUND)
    if what in left:
        return False
    if what in ("true", "bias"):
        return isinstance(default, bool)
    if what == "p":
        return not isinstance(default, bool)
    return what != "D" or default is not None


def role_of(parameter: inspect.Parameter, names: list[str]) -> str | None:
    """The meaning of one parameter, given the others' names."""
    what, letters = meaning(parameter.name), plain(parameter.name)
    others = {MEANING[n] for n in names if n in MEANING and n != letters}
    if isinstance(parameter.default, bool):  # a switch, whatever it is called
        return what if what in ("true", "false", "bias") else None
    if letters == "k" and "h" in names:
        return "width"
    if letters == "d":
        return "d_in" if "d_out" in others else "width"
    if letters == "n":
        return "context" if "H" in others else "H"
    if "d_in" in others:
        return what
    if "H" in others and "D" in others and letters in INPUTS:
        return "width" if "d_out" in others else "d_in"
    if what == "width" and "d_out" in others:
        return "d_in"
    return what


# Beside a width of each head, these say how wide the input is.
INPUTS = ("dim", "querydim", "embed", "embeddim", "nembd", "width", "dmodel")
CONFIGS = (
    *("config", "cfg", "conf", "c", "args", "params", "hparams", "hps", "settings"),
    "opt",
)


def own_config(cls: type) -> Any:
    """The one dataclass of the class's file that is a config, by its name."""
    names = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
    names = getattr(cls.__init__, "__globals__", names)  # type: ignore[misc]
    found = [
        value
        for value in list(names.values())
        if dataclasses.is_dataclass(value)
        and isinstance(value, type)
        and value.__module__ == cls.__module__
        and re.search(r"config|args|params|settings", value.__name__.lower())
    ]
    return found[0] if len(found) == 1 else None


def config_for(
    cls: type,
    parameter: inspect.Parameter,
    sizes: Sizes,
    named: dict[str, str],
    alone: bool,
) -> Any:
    """A config object where the parameter is one.

    alone: no other parameter has a meaning; then "c" is one, else a number of channels.
    """
    name = parameter.name.lower().strip("_")
    if name not in CONFIGS or (name == "c" and not alone):
        return None
    if parameter.default is not parameter.empty and parameter.default is not None:
        return None
    kind = parameter.annotation
    if kind is parameter.empty:
        kind = own_config(cls)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        values = {}
        for item in dataclasses.fields(kind):
            what = named.get(item.name) or meaning(item.name)
            if what and item.init:
                values[item.name] = value_for(what, sizes)
                named[item.name] = what
        with contextlib.suppress(Exception):
            return kind(**values)
        with contextlib.suppress(Exception):
            return by_default(kind, sizes, named)
    return Config(sizes, named)


def by_default(kind: Any, sizes: Sizes, named: dict[str, str]) -> Any:
    """A config with the file's own values; `sizes` become what they are there."""
    config = kind()
    means = {item.name: meaning(item.name) for item in dataclasses.fields(kind)}
    for name, what in means.items():
        value = getattr(config, name)
        if what == "width" and {"H", "D"} <= set(means.values()):
            what = "d_in"  # the heads need not fill it
        if what is None or what == "width" or isinstance(value, bool):
            continue
        named[name] = what
        if isinstance(value, int | float) and hasattr(sizes, what):
            setattr(sizes, what, value)
    return config
