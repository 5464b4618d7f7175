"""One module under examination: how it is called, its runs, and how they are judged."""

import contextlib
import copy
import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from steps.debugger.arguments import Sizes
from steps.debugger.build import Built, make_lazy, owner_of, prepare
from steps.debugger.calls import (
    Call,
    Mask,
    Way,
    arranged,
    invented,
    is_mask,
    takes_context,
)
from steps.debugger.file import File
from steps.debugger.inputs import PLAIN, Form, opened, replaced
from steps.debugger.judge import CONTEXTS, OUTPUT, Judgement, judge, stages_read
from steps.debugger.load import first_line
from steps.debugger.roles import (
    Heads,
    Projection,
    changed_heads,
    projections,
    readings,
    split,
    token_axes,
)
from steps.debugger.run import Node, Run, as_tokens, depend, is_weight, record, state_of
from steps.debugger.stages import Label
from steps.errors import UserError
from steps.pytorch import nn, torch
from steps.walk.recorder import storage, tensors_in
from steps.walk.source import Place


@dataclass
class Case:
    """Everything about the module under examination."""

    module: nn.Module
    file: File
    sizes: Sizes
    built: Built | None
    causal: bool
    claims: bool  # whether it claims to be causal
    undecided: bool  # neither the class nor the reader says whether it should be
    x: torch.Tensor
    hidden: list[str]  # tensors outside parameters and buffers
    weights: dict[str, torch.Tensor]
    said: str = "x"  # how forward was called
    how: Any = None  # (args, kwargs) as a function of the module and x
    way: Way = field(default_factory=Way)  # where it is not the reader's own
    run: Run = field(init=False)
    other: Run = field(init=False)  # with one number of x changed
    at: tuple[int, int] = (0, 0)  # where
    found: list[Projection] = field(default_factory=list)
    plain: dict[Node, str] = field(default_factory=dict)
    judgement: Judgement | None = None  # None where no heads are found
    notes: list[str] = field(default_factory=list)
    risks: list[dict[str, Any]] = field(default_factory=list)  # see Diagnosis
    tried: list[str] = field(default_factory=list)  # settings that were run, and right
    not_tried: list[str] = field(default_factory=list)  # and those that were not
    make: Callable[[], nn.Module] | None = None  # makes the module anew, where told how
    asked_call: Call | None = None  # what the reader says that forward is given
    by_caller: bool = False  # whether only a mask that forward is given makes it causal
    takes_mask: bool = False  # whether forward has a parameter for one
    given: set[str] = field(default_factory=set)  # parameters that some run was given
    made_up: str = ""  # parameters of forward that were guessed at, such as angles
    tokens_first: bool = False  # its input and output are (tokens, sequences, features)
    one_length: bool = False  # whether it takes inputs of x's length alone
    form: Form = PLAIN  # how x is arranged for forward otherwise

    @property
    def judged(self) -> Judgement:
        """The judgement, where heads are found."""
        assert self.judgement is not None
        return self.judgement

    @property
    def labels(self) -> dict[Node, Label]:
        """What the operations hold, as far as it is known."""
        return self.judgement.labels if self.judgement is not None else {}

    @property
    def told(self) -> set[str]:
        """What the constructor's arguments mean; see steps.debugger.build."""
        return set(self.built.named.values()) if self.built is not None else set()

    @property
    def wrong(self) -> Node | None:
        """The first operation that holds no stage; None where the wrong one raised."""
        return self.judgement.fault if self.judgement is not None else None

    @property
    def read(self) -> list[Node]:
        """What the first wrong operation was given, where that is made of x."""
        if self.wrong is not None:
            return self.wrong.inputs
        given = tensors_in(self.run.failed[2:]) if self.run.failed is not None else ()
        nodes = [self.run.node_of(tensor) for tensor in given]
        return [node for node in nodes if node is not None and node.uses_x]

    @property
    def seen(self) -> int | None:
        """The line where the run goes wrong, whatever is to blame."""
        place = self.wrong.entry.place if self.wrong is not None else self.run.place
        return place.line if place is not None else None

    @property
    def B(self) -> int:
        return self.x.shape[0] if self.x.dim() == 3 else 1

    @property
    def T(self) -> int:
        return self.x.shape[-2]

    @property
    def shape(self) -> tuple[int, ...]:
        """That of x as forward is given it."""
        return tuple(self.form.given(self.x).shape)

    @property
    def mask(self) -> Mask | None:
        """The causal mask that forward was given."""
        return self.way.mask

    def call(self, module: nn.Module, x: torch.Tensor) -> Callable[[], Any]:
        """The forward pass, its arguments made ready before any recorder watches."""
        args, kwargs = self.arguments(module, x)
        shown = self.form.given(x)
        shown = shown.transpose(0, 1) if self.tokens_first and x.dim() == 3 else shown
        return lambda: opened(module(*args, **kwargs), shown)

    def arguments(self, module: nn.Module, x: torch.Tensor) -> tuple[tuple, dict]:
        """What forward is given for x (B, T, d_in), in the form that it takes."""
        args, kwargs = self.how(module, x)
        return replaced(args, kwargs, x, self.form.given(x))

    def forward(self, module: nn.Module, x: torch.Tensor) -> Any:
        """What it returns; its first tensor as (sequences, tokens, features)."""
        return self.turned(self.call(module, self.form.laid(x))())

    def turned(self, result: Any) -> Any:
        """A result of forward with its first tensor as (sequences, tokens, ...)."""
        if not self.tokens_first and self.form.plain:
            return result
        if isinstance(result, tuple | list) and result:
            return (self.turned(result[0]), *result[1:])
        if isinstance(result, torch.Tensor) and not self.form.plain:
            return self.form.back(result)
        if isinstance(result, torch.Tensor) and result.dim() > 2:
            return result.transpose(0, 1)
        return result

    def record(
        self,
        x: torch.Tensor | None = None,
        module: nn.Module | None = None,
        seed: int = 1,
        **options: Any,
    ) -> Run:
        """A recorded run: of this module and x, or of those that are given."""
        x = self.form.laid(self.x if x is None else x)  # which forward may change
        state = self.weights if module is None else state_of(module)
        module = module or self.module
        torch.default_generator.manual_seed(seed)
        weights = {path: state[path] for path in self.weights if path in state}
        call = self.call(module, x)
        run = record(module, call, x, self.file.path, weights=weights, **options)
        rows = self.form.rows(x)
        run.shown = as_tokens(self.form.given(x), rows)
        for node in run.nodes:
            node.rows = rows
        return run

    def copied(self) -> nn.Module:
        """The module to be changed: a copy, or made anew where it has none."""
        try:
            return copy.deepcopy(self.module)
        except Exception:
            if self.built is None or self.built.again is None:
                raise
        module = self.built.again(self.sizes)
        make_lazy(module, self.x, self.sizes.D)
        prepare(module)
        return module

    def path_of(self, tensor: torch.Tensor) -> str | None:
        """Where the module keeps a tensor, or one that it is a view of."""
        for path, held in state_of(self.module).items():
            if held is tensor or storage(held) == storage(tensor):
                return path
        return None

    def made_at(self, path: str, local: bool = False) -> Place | None:
        """Where a constructor makes what a path names, or the part that holds it.

        local: rather the local variable that it comes from, if there is one.
        """
        while path:
            with contextlib.suppress(
                LookupError, AttributeError, TypeError, ValueError
            ):
                place = self.file.constructor(*owner_of(self.module, path), local)
                if place is not None:
                    return place
            path = path.rpartition(".")[0]
        return None

    def again(self, said: str, how: Callable) -> "Case":
        """The same case, not run yet, with another way to call forward."""
        made = copy.copy(self)
        made.said, made.how, made.judgement = said, how, None
        made.notes, made.risks = list(self.notes), list(self.risks)
        made.tried, made.not_tried = list(self.tried), list(self.not_tried)
        return made

    def of(self, module: nn.Module) -> "Case":
        """The same case, not run yet, of another module made of the same file."""
        made = self.again(self.said, self.how)
        state = state_of(module)
        known = {id(t) for t in (*module.parameters(), *module.buffers())}
        made.module = module
        made.weights = {path: t for path, t in state.items() if is_weight(state, path)}
        made.hidden = [path for path, t in state.items() if id(t) not in known]
        return made

    def by(self, way: Way) -> "Case":
        """The same case, not run yet, called in this way."""

        def how(module: nn.Module, x: torch.Tensor) -> tuple[tuple, dict]:
            args, kwargs = way.arguments(module, x)
            if self.tokens_first and x.dim() == 3:
                return replaced(args, kwargs, x, x.transpose(0, 1))
            return args, kwargs

        made = self.again(way.said, how)
        made.way = way
        return made

    def giving(self, **more: Callable[[torch.Tensor], Any]) -> "Case":
        """The same case, not run yet, with other values for some of the parameters.

        Each is a function of x, and gives sequences first, whatever forward takes.
        """

        def how(module: nn.Module, x: torch.Tensor) -> tuple[tuple, dict]:
            args, kwargs = self.how(module, x)
            bound = inspect.signature(module.forward).bind(*args, **kwargs)
            made = {name: make(x) for name, make in more.items()}
            for name, value in made.items():
                if isinstance(value, torch.Tensor) and x.dim() == 3:
                    made[name] = self.turned(value)
            return arranged(module, {**bound.arguments, **made})

        return self.again(", ".join([self.said, *more]), how)

    def risk(
        self, at: Node | Place | None, kind: str, setting: str, message: str
    ) -> None:
        """Note what is right here and wrong in a setting that nobody asked for.

        setting: "half", "device", "indivisible", "large_scores", ...; message: a whole
        sentence that does not name the line.
        """
        place = at.entry.place if isinstance(at, Node) else at
        line = place.line if place is not None else None
        risk = {"line": line, "kind": kind, "setting": setting, "message": message}
        if risk not in self.risks:
            self.risks.append(risk)


def make_case(
    module: nn.Module,
    file: str,
    sizes: Sizes,
    built: Built | None,
    causal: bool | None,
    call: Call | None = None,
) -> Case:
    generator = torch.Generator().manual_seed(11)
    shape = sizes.B, sizes.T, sizes.d_in
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    try:
        make_lazy(module, x, sizes.D)
        hidden = prepare(module)
    except RecursionError:
        raise UserError(
            "has layers that hold one another, or too many inside one another: "
            "PyTorch's own eval() and double() never come to their end"
        ) from None
    claims = claims_causal(module, built, sizes.T)
    own = claims_causal(module, built, sizes.T, asked=False)
    state = state_of(module)
    return Case(
        module,
        File(file),
        sizes,
        built,
        claims if causal is None else causal,
        claims,
        causal is None and not claims,
        x,
        hidden,
        {path: t for path, t in state.items() if is_weight(state, path)},
        by_caller=causal is None and claims and not own,
        made_up="" if call else ", ".join(invented(module)),
        asked_call=call,
    )


def copy_of(module: nn.Module) -> nn.Module:
    """A copy of a reader's instance, which is left as it is."""
    try:
        return copy.deepcopy(module)
    except Exception as error:
        raise UserError(
            f"cannot be copied, and is not examined itself: {first_line(error)}"
        ) from None


def claims_causal(
    module: nn.Module, built: Built | None, T: int, asked: bool = True
) -> bool:
    """Whether the class says, or shows, that a token may not look ahead.

    asked: count it as a claim that forward can be asked for a mask.
    """
    words = " ".join(type(part).__name__ for part in module.modules()).lower()
    if any(word in words for word in ("causal", "masked")):
        return True
    if any(word in words for word in ("decoder", "gpt")) and not takes_context(module):
        return True
    told = set(built.named.values()) if built is not None else set()
    if "true" in told or ("context" in told and not positions(module, built)):
        return True
    for path, tensor in state_of(module).items():
        square = tensor.dim() >= 2 and tensor.shape[-1] == tensor.shape[-2] >= T
        if (square and not isinstance(tensor, nn.Parameter)) or "mask" in path.lower():
            return True
    kept = [value for name, value in vars(module).items() if "mask" in name.lower()]
    if any(value is not None and value is not False for value in kept):
        return True
    with contextlib.suppress(TypeError, ValueError):
        names = inspect.signature(module.forward).parameters
        return asked and any(is_mask(n) or "causal" in n.lower() for n in names)
    return False


def positions(module: nn.Module, built: Built | None) -> bool:
    """Whether there is a learnt vector for each position: what a context is for."""
    context = built.sizes.context if built is not None else 0
    return any(
        context in tensor.shape[:-1] and tensor.shape[-1] != context
        for tensor in module.parameters()
    )


# ---------------------------------------------------------------- run


def run_twice(case: Case) -> None:
    """Record a run, and another with one number of x changed."""
    case.run = case.record()
    failed = case.run.error is not None and case.mask is None
    single = failed and case.x.dim() == 3 and case.form.plain
    if not single or not takes_two(case):
        case.other = case.record(changed(case))


def changed(case: Case) -> torch.Tensor:
    """x with one number changed; case.at is its sequence and token."""
    x = case.form.laid(case.x)
    case.at = (0, case.T // 2)
    token = x[case.at] if x.dim() == 3 else x[case.at[1]]
    token[x.shape[-1] // 2] += 1.0
    return x


def takes_two(case: Case) -> bool:
    """Whether the module takes one sequence, (T, d_in), without an error."""
    x, first = case.x, case.run
    case.x = x[0].clone()
    case.run = case.record()
    out = case.run.output if case.run.error is None else None
    if out is not None and out.dim() == 2 and out.shape[0] == x.shape[1]:
        case.other = case.record(changed(case))
        return True
    case.x, case.run = x, first
    return False


# ---------------------------------------------------------------- judge


def judge_run(case: Case) -> None:
    """Judge the run under every reading of its projections, and keep the best."""
    run, other = case.run, case.other
    depend(run, other)
    case.found, case.plain = projections(run, other, case.B, case.T, case.at)
    modes = [case.causal]
    if case.undecided:
        modes = [True] if masks_in(run, case.T) else [case.causal, not case.causal]
    best = best_reading(case, modes)
    if best is not None and not best.clean:
        for judgement in bare_readings(case, modes[0]):
            if judgement.progress > best.progress or judgement.clean:
                best = judgement
    if (
        best is not None
        and best.heads.layout
        and not best.clean
        and unmixed(case, best)
    ):
        best = None  # one wide layer and no attention after it: no packed q, k and v
    if best is not None and best.fault is not None and before_scores(best):
        heads = changed_heads(run, other, best.heads, case.at)
        for judgement in judgements(case, heads, modes) if heads is not None else ():
            if judgement.clean or judgement.progress >= best.progress:
                best = judgement
            if judgement.clean:
                break
    case.judgement = best
    if best is not None:
        case.causal = best.reference.causal


def best_reading(case: Case, modes: list[bool]) -> Judgement | None:
    best: Judgement | None = None
    for count, heads in enumerate(all_readings(case)):
        for judgement in judgements(case, heads, modes):
            if best is None or rating(judgement) > rating(best):
                best = judgement
            if judgement.clean and not judgement.conflicts:
                break
        if count > 30 or (best is not None and best.clean and not best.conflicts):
            break
    return best


def judgements(case: Case, heads: Heads, modes: list[bool]) -> Iterator[Judgement]:
    for causal in modes:
        yield judge(
            case.run,
            heads,
            case.found,
            case.plain,
            causal,
            case.weights,
            case.tokens_first,
        )


def bare_readings(case: Case, causal: bool) -> Iterator[Judgement]:
    """Two layers and x itself, read as queries, keys and values."""
    width, H = case.x.shape[-1], case.sizes.H
    if len(case.found) != 2 or case.x.dim() != 3 or width % H:
        return
    if any(p.width != width or p.deep for p in case.found):
        return
    x = split(case.x.double(), H)
    for role, others in (("v", "qk"), ("k", "qv"), ("q", "kv")):
        for pair in itertools.permutations(case.found):
            roles = {role: [], **{r: [p] for r, p in zip(others, pair, strict=True)}}
            made = {r: split(ps[0].value, H) if ps else x for r, ps in roles.items()}
            heads = Heads(made["q"], made["k"], made["v"], roles)
            yield from judgements(case, heads, [causal])


def all_readings(case: Case) -> Iterable[Heads]:
    """Every way to read the projections as heads, the most likely first."""
    if case.form.packed:
        return handed_over(case)
    inside = mha_heads(case)
    if inside is not None:
        return [inside]
    asked = case.sizes.H if case.built is None or case.built.heads_asked else None
    numbers = [v for m in case.module.modules() for v in vars(m).values()]
    guesses = sorted({n for n in numbers if type(n) is int and 1 < n <= 64})
    if asked is None:
        guesses += [h for h in heads_seen(case) if h not in guesses]
    in_list = any(re.search(r"\.\d+\.", p.paths[0]) for p in case.found)
    if case.run.error is not None and in_list:
        guesses = [1, *([asked] if asked else []), *guesses]
        asked = None
    return readings(case.found, asked, guesses, case.run)


def handed_over(case: Case) -> Iterator[Heads]:
    """Queries, keys and values of every head that x itself holds."""
    for layout in case.form.layouts():
        sizes = {"3": 3, "H": case.form.heads, "D": -1}
        parts = case.x.unflatten(-1, [sizes[a] for a in layout]).movedim(
            2 + layout.index("3"), 0
        )
        q, k, v = parts.transpose(2, 3)
        yield Heads(q, k, v, {"q": [], "k": [], "v": []}, layout, given=True)


def heads_seen(case: Case) -> list[int]:
    """Numbers of heads that the shapes of the run speak of: H next to D = width / H."""
    widths = {p.width for p in case.found} | {p.width // 3 for p in case.found}
    pairs = {
        pair
        for node in case.run.nodes
        if node.entry.origin != "computed" and len(node.entry.shape) > 3
        for pair in itertools.pairwise(node.entry.shape)
    }
    return sorted({h for h, d in pairs if h > 1 and d > 1 and h * d in widths})


def mha_heads(case: Case) -> Heads | None:
    """The heads of PyTorch's own multi-head attention, by the weights it was given."""
    if not case.run.fused:
        return None
    args, kwargs = case.run.fused[0]
    names = (
        "query",
        "key",
        "value",
        "E",
        "num_heads",
        "in_proj_weight",
        "in_proj_bias",
    )
    given = dict(zip(names, args, strict=False)) | kwargs
    weight, bias = given.get("in_proj_weight"), given.get("in_proj_bias")
    H, E = given["num_heads"], given["query"].shape[-1]
    if weight is None or weight.shape[-1] != E:
        return None
    x = case.x
    B, T = x.shape[:2] if x.dim() == 3 else (1, x.shape[0])
    parts = []
    for number, name in enumerate(names[:3]):
        value = token_first(given[name].detach().double(), B, T)
        if value is None:
            return None
        own = slice(number * E, (number + 1) * E)
        value = value @ weight[own].detach().double().T
        if bias is not None:
            value = value + bias[own].detach().double()
        parts.append(value.view(B, T, H, E // H).transpose(1, 2))
    q, k, v = parts
    return Heads(q, k, v, roles={"q": [], "k": [], "v": []})


def token_first(value: torch.Tensor, B: int, T: int) -> torch.Tensor | None:
    """What was handed over as (tokens, sequences, features), as (B, T, features) by the
    numbers: the module's x may have been turned round, or not, on the way."""
    if value.dim() == 2:
        value = value[:, None]
    if tuple(value.shape[:2]) == (T, B):
        return value.transpose(0, 1)
    return value if tuple(value.shape[:2]) == (B, T) else None


def unmixed(case: Case, judgement: Judgement) -> bool:
    """Whether no split of q, k and v was seen and no output reads another token."""
    projected = {p.node for p in case.found}
    if any(
        label.stage.rank >= 2
        for node, label in judgement.labels.items()
        if node not in projected
    ):
        return False
    out, twin = case.run.output, case.other.output
    if out is None or twin is None or out.shape != twin.shape:
        return False
    return token_axes(out, twin, case.B, case.T, case.at) is not None


def before_scores(judgement: Judgement) -> bool:
    """Whether the first wrong operation reads nothing but queries or keys."""
    names = stages_read(judgement)
    return bool(names) and names <= {"queries", "keys"}


def masks_in(run: Run, T: int) -> bool:
    """Whether forward makes or reads a (T, T) table of few values: a mask."""
    for node in run.nodes:
        for table in [t for t, _ in node.constants] if node.uses_x else [node.value]:
            square = [n for n in table.shape if n != 1] == [T, T]
            if square and not table.is_meta and 1 < table.unique().numel() <= 3:
                return True
    return False


def rating(judgement: Judgement) -> tuple:
    """The better reading of two: named right, then clean, then further along."""
    if judgement.heads.strided and judgement.progress < 300:
        return -99, False, 0, 0  # heads of every H-th feature: only if scores use them
    return -judgement.conflicts, judgement.clean, judgement.progress, judgement.named


# ---------------------------------------------------------------- try again


def plainly(
    case: Case, x: torch.Tensor, module: nn.Module | None = None, seed: int = 1
) -> tuple[torch.Tensor | None, Exception | None]:
    """(output, error) of a run that is not recorded."""
    torch.default_generator.manual_seed(seed)
    with torch.no_grad():
        try:
            result = case.forward(module or case.module, x)
        except Exception as error:
            return None, error
    return next(tensors_in(result), None), None


def is_clean(case: Case) -> bool:
    """Whether the module, as it is now, has no fault."""
    again = case.again(case.said, case.how)
    run_twice(again)
    if again.run.error is not None:
        return False
    judge_run(again)
    return again.judgement is not None and again.judgement.clean


def is_clean_with(case: Case, number: int, result: torch.Tensor) -> bool:
    """Whether the output is right once a torch call's result is replaced."""
    output = case.record(replace={number: result}).output
    if output is None:
        return False
    reference, output = case.judged.reference, output.double()
    stages = [stage for stage in reference.stages if stage.rank == OUTPUT]
    if stages:
        return any(reference.holds(output, stage) for stage in stages)
    label = reference.label(output)
    return label is not None and label.stage.rank >= CONTEXTS
