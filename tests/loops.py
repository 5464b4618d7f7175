"""What a sample must give: attention by plain loops over the module's own weights.

A right module passes every check here, under every condition; a faulty one fails the
checks that it names. Nothing in this file knows of the debugger.
"""

import dataclasses
import functools
import linecache
import re
import types
from argparse import Namespace

import pytest

from steps.pytorch import nn, torch

# All distinct, so that no two axes can stand in for each other.
BATCH, TOKENS, D_IN = 2, 5, 10
SIZES = {"num_heads": 3, "head_dim": 4, "context_length": 7}
ERRORS = RuntimeError, ValueError, IndexError, AssertionError


# What a header's `qkvo` may use: each returns (weight, bias), rows head by head.


def pair(layer):
    """(weight, bias) of a Linear, or the pair itself."""
    return layer if isinstance(layer, tuple) else (layer.weight, layer.bias)


def part(layer, index, parts=3):
    """One of several equal blocks of rows of a packed layer."""
    weight, bias = pair(layer)
    bias = None if bias is None else bias.chunk(parts)[index]
    return weight.chunk(parts)[index], bias


def cut(layer, index, *sizes):
    """One of several blocks of rows of a packed layer, of these sizes."""
    weight, bias = pair(layer)
    bias = None if bias is None else bias.split(sizes)[index]
    return weight.split(sizes)[index], bias


def cat(layers):
    """Layers of single heads, one under the other."""
    weights, biases = zip(*map(pair, layers), strict=True)
    return torch.cat(weights), None if biases[0] is None else torch.cat(biases)


def cat_columns(layers):
    """Layers that each read one head, side by side; no bias."""
    return torch.cat([layer.weight for layer in layers], dim=1), None


def rows(layer, order):
    """The rows of a layer taken in another order."""
    weight, bias = pair(layer)
    return weight[order], None if bias is None else bias[order]


def columns(layer, order):
    """The columns of a layer taken in another order; the bias stays."""
    weight, bias = pair(layer)
    return weight[:, order], bias


def packed_rows(layout, heads, width, index):
    """Row numbers of q, k or v (index 0, 1, 2) in a packed layer, head by head.

    `layout` names the order of the packed axis from slow to fast: "h3d" is a block
    for each head, holding that head's q, k and v rows.
    """
    sizes = {"h": heads, "3": 3, "d": width}
    numbers = torch.arange(3 * heads * width).view([sizes[axis] for axis in layout])
    return numbers.permute([layout.index(axis) for axis in "3hd"])[index].flatten()


HELPERS = {
    helper.__name__: helper
    for helper in (part, cut, cat, cat_columns, rows, columns, packed_rows)
}


def first_tensor(out):
    """The output in what forward returns: a tensor, or the first one held."""
    if dataclasses.is_dataclass(out):
        out = vars(out)
    if isinstance(out, dict):
        out = list(out.values())
    if isinstance(out, types.GeneratorType):
        out = (torch.stack(list(out)),)
    return out[0] if isinstance(out, tuple | list) else out


class Case:
    """One source, to be built at any size, with its weights found by its fields."""

    def __init__(self, source, fields):
        self.fields = fields
        name = f"<case {hash(source)}>"  # torch.jit.script reads the source again
        linecache.cache[name] = len(source), None, source.splitlines(True), name
        self.code = compile(source, name, "exec", dont_inherit=True)
        self.own = eval(f"dict({fields.get('sizes', '')})")
        self.heads, self.width = (self.sizes()[n] for n in ("num_heads", "head_dim"))
        longest = self.sizes()["context_length"]
        told = fields.get("lengths", f"{TOKENS} 1 {longest}")
        self.lengths = [int(length) for length in told.split()]

    def takes(self, name):
        return re.search(rf"\b{name}\b", self.fields["build"]) is not None

    def sizes(self, **changes):
        """What `build` may name; d_in is d_out where the module has one width."""
        sizes = SIZES | self.own
        d_out = sizes["num_heads"] * sizes["head_dim"]
        sizes |= {"d_out": d_out, "d_in": D_IN if self.takes("d_in") else d_out}
        return sizes | {"dropout": 0.0, "bias": False} | changes

    def build(self, dtype=torch.float64, **changes):
        """A new module with the same random weights each time."""
        scope = types.ModuleType("case")
        torch.manual_seed(1)
        exec(self.code, scope.__dict__)
        names = vars(scope) | self.sizes(**changes) | {"Namespace": Namespace}
        return eval(self.fields["build"], names).to(dtype).eval()

    def inputs(self, tokens=None, dtype=torch.float64):
        generator = torch.Generator().manual_seed(2)
        shape = (BATCH, tokens or self.lengths[0], self.sizes()["d_in"])
        return torch.randn(shape, generator=generator).to(dtype)

    def run(self, module, x, call="call", **names):
        """The output tensor, from whatever it is returned in."""
        text = self.fields.get(call, "m(x)")
        names |= {"m": module, "x": x, "torch": torch}
        return first_tensor(eval(text, names))

    def weights(self, module):
        """(weight, bias) of q, k, v and the output layer (or None)."""
        names = HELPERS | self.sizes() | {"m": module, "torch": torch}
        q, k, v, out = eval(f"({self.fields['qkvo']})", names)
        return pair(q), pair(k), pair(v), None if out is None else pair(out)

    def seen(self, i, tokens):
        """The tokens that token i looks at: up to itself, if `sees` says no other."""
        told = self.fields.get("sees", "slice(0, i + 1)")
        return slice(0, tokens) if told == "all" else eval(told, {"i": i})

    def loops(self, module, x, other=None):
        """The output by plain loops: the specification.

        Each token of each head looks at the tokens that it may see and at no other, so
        there is no mask to get wrong. Keys and values are made of `other` if given, and
        all of it is seen. Returns (output (B, T, ...), values (B, T, H*D), shares),
        with shares[h, i] (B, tokens seen) the weights of token i in head h.
        """
        with torch.no_grad():
            given = x
            if "reads" in self.fields:
                given = self.run(module, x, "reads")
            q, k, v, _ = self.weights(module)
            q = nn.functional.linear(given, *q)
            source = given if other is None else other
            k, v = (nn.functional.linear(source, *layer) for layer in (k, v))
            k, v = (self.for_each_head(t) for t in (k, v))
            context, shares = torch.zeros_like(q), {}
            for h in range(self.heads):
                mine = slice(h * self.width, (h + 1) * self.width)
                asked = self.turned(module, "q", q[..., mine])
                held = self.turned(module, "k", k[..., mine])
                for i in range(x.shape[1]):
                    seen = self.seen(i, k.shape[1]) if other is None else slice(None)
                    scores = (asked[:, i : i + 1] * held[:, seen]).sum(-1)
                    scores = scores / self.width**0.5
                    raised = (scores - scores.amax(1, keepdim=True)).exp()
                    share = raised / raised.sum(1, keepdim=True)
                    context[:, i, mine] = (share[..., None] * v[:, seen, mine]).sum(1)
                    shares[h, i] = share
            return self.given(module, x, context), v, shares

    def turned(self, module, side, rows):
        """Queries or keys of one head (B, T, D), with what is done to them there."""
        names = {"m": module, "side": side, "t": rows, "torch": torch}
        return eval(self.fields.get("turns", "t"), names)

    def given(self, module, x, joined):
        """What the module makes of joined heads: through the output layer, and on."""
        out = self.weights(module)[3]
        out = joined if out is None else nn.functional.linear(joined, *out)
        return eval(self.fields.get("gives", "out"), {"m": module, "x": x, "out": out})

    def for_each_head(self, rows):
        """Keys or values (B, T, groups*D) as (B, T, H*D): heads in a row share one."""
        groups = list(rows.split(self.width, dim=-1))
        times = self.heads // len(groups)
        return torch.cat([group for group in groups for _ in range(times)], dim=-1)


def close(left, right, tolerance=1e-5):
    assert left.shape == right.shape, (left.shape, right.shape)
    assert torch.isfinite(left).all(), "not finite"
    assert (left - right).abs().max() <= tolerance, (left - right).abs().max()


def check_eval(case):
    """The loops' numbers for one token, some, and as many as the module takes."""
    module = case.build()
    for tokens in case.lengths:
        x = case.inputs(tokens)
        before = x.clone()
        close(case.run(module, x), case.loops(module, x)[0])
        assert torch.equal(x, before), "the input was changed"


def check_longer(case):
    """More tokens than context_length: right numbers or an error, never wrong ones."""
    module, x = case.build(), case.inputs(case.sizes()["context_length"] + 3)
    try:
        out = case.run(module, x)
    except ERRORS:
        return
    close(out, case.loops(module, x)[0])


def check_padding(case):
    """Of two sentences, one padded in front, each gives what it gives alone."""
    if "padded" in case.fields:
        module, x, starts = case.build(), case.inputs(), (2, 0)
        seen = torch.arange(TOKENS) >= torch.tensor(starts)[:, None]
        out = case.run(module, x, "padded", seen=seen)
        for b, start in enumerate(starts):
            alone = case.loops(module, x[b : b + 1, start:])[0]
            close(out[b : b + 1, start:], alone)


def check_cache(case):
    """Two tokens, then one at a time beside a cache, give what the whole gives."""
    if "cached" in case.fields:
        module, x, past, parts = case.build(), case.inputs(), None, []
        for part in (x[:, :2], *x[:, 2:].split(1, dim=1)):
            names = {"m": module, "x": part, "past": past}
            out, past = eval(case.fields["cached"], names)
            parts.append(out)
        close(torch.cat(parts, dim=1), case.loops(module, x)[0])


def check_context(case):
    """Keys and values of another input, of another length."""
    if "crossed" in case.fields:
        module, x = case.build(), case.inputs()
        other = case.inputs(2 * TOKENS)[:, TOKENS + 1 :]
        out = case.run(module, x, "crossed", other=other)
        close(out, case.loops(module, x, other)[0])


def check_eval_dropout(case):
    """A dropout rate changes nothing in eval mode."""
    if case.takes("dropout"):
        module, x = case.build(dropout=0.5), case.inputs()
        close(case.run(module, x), case.loops(module, x)[0])


def check_train_dropout(case):
    """In train mode each weight is dropped or doubled (p=0.5), and nothing else;
    with p=0 nothing is.

    For the first three tokens the output must be one of those that keeping or
    dropping each weight of each head can give; all but certainly, several occur.
    """
    x = case.inputs()
    module = case.build(dropout=0.0).train()
    close(case.run(module, x), case.loops(module, x)[0])
    if not case.takes("dropout"):
        return
    module = case.build(dropout=0.5).train()
    for name in case.fields.get("also_drops", "").split():
        module.get_submodule(name).p = 0.0
    found = {0: set(), 1: set(), 2: set()}
    with torch.no_grad():
        outputs = [case.run(module, x) for _ in range(6)]
    _, values, shares = case.loops(module, x)
    for b, i in ((b, i) for b in range(BATCH) for i in found):
        joined = thinned(case, values[b], shares, b, i)
        possible = case.given(module, x[b, i], joined)
        for output in outputs:
            error, nearest = (possible - output[b, i]).abs().amax(1).min(0)
            assert error < 1e-5, f"no choice of dropped weights gives token {i}"
            found[i].add(nearest.item())
    assert all(len(seen) > 2 for seen in found.values()), "nothing was dropped"


def thinned(case, values, shares, b, i):
    """Each sum of values (T, H*D) that keeping or dropping weights of token i gives."""
    seen, count = case.seen(i, len(values)), shares[0, i].shape[-1]
    choices = torch.arange(2**count)
    kept = (choices[:, None] >> torch.arange(count) & 1).to(values.dtype)
    possible = torch.zeros(1, values.shape[-1], dtype=values.dtype)
    for h in range(case.heads):
        mine = slice(h * case.width, (h + 1) * case.width)
        one = torch.zeros(len(choices), 1, values.shape[-1], dtype=values.dtype)
        one[:, 0, mine] = (2 * kept * shares[h, i][b]) @ values[seen, mine]
        possible = (one + possible).flatten(0, 1)
    return possible


def check_half(case):
    """Half precision: finite, and near the loops in double precision."""
    module = case.build()
    wanted = case.loops(module, case.inputs())[0]
    with torch.no_grad():
        got = case.run(module.half(), case.inputs(dtype=torch.float16))
    close(got.double(), wanted, 0.05)


def check_large(case):
    """Scores of millions: the loops' numbers still, so nothing hidden comes back."""
    module, x = case.build(), case.inputs() * 1e4
    wanted = case.loops(module, x)[0]
    close(case.run(module, x) / 1e4, wanted / 1e4)


def check_meta(case):
    """The module can move: every tensor goes along to another device."""
    module = case.build().to("meta")
    out = case.run(module, case.inputs().to("meta"))
    assert out.device.type == "meta"


def check_registered(case):
    """parameters() holds the four weights, each once, and no other matrix."""
    module = case.build()
    held = [p for p in module.parameters() if p.dim() > 1]
    for name in case.fields.get("also_learns", "").split():
        held = [p for p in held if p is not module.get_parameter(name)]
    wanted = sum(layer[0].numel() for layer in case.weights(module) if layer)
    assert sum(p.numel() for p in held) == wanted
    out = case.run(module, case.inputs())
    (out * torch.randn_like(out)).sum().backward()
    assert all(p.grad is not None for p in held)
    with torch.no_grad():  # the gradient in the weights' place, to be found like them
        for p in module.parameters():
            p.copy_(p if p.grad is None else p.grad)
    assert all(layer[0].abs().max() > 0 for layer in case.weights(module) if layer)


def check_bias(case):
    """q, k and v have biases when asked for, none when not, and they count."""
    if not case.takes("bias"):
        return
    for wish in (False, True):
        module, x = case.build(bias=wish), case.inputs()
        assert all((b is not None) == wish for _, b in case.weights(module)[:3])
        close(case.run(module, x), case.loops(module, x)[0])


def check_divisible(case):
    """A width that the heads do not divide is refused by the constructor."""
    if case.takes("d_out"):
        uneven = case.heads * case.width + 1
        with pytest.raises((ValueError, AssertionError)):
            case.build(d_out=uneven, d_in=D_IN if case.takes("d_in") else uneven)


CHECKS = {
    name.removeprefix("check_"): check
    for name, check in list(globals().items())
    if name.startswith("check_")
}
NAMES = (
    "build", "call", "qkvo", "also_drops", "also_learns", "sizes", "sees", "reads",
    "lengths", "cached", "crossed", "padded", "turns", "gives", "skip",
)  # fmt: skip


@functools.cache
def proved(source, fields):
    case = Case(source, dict(fields))
    for name, check in CHECKS.items():
        if name not in case.fields.get("skip", "").split():
            check(case)


def prove(source, fields):
    """All checks but those of `skip`. Many faults have one right form: proved once."""
    proved(source, tuple((name, fields[name]) for name in NAMES if name in fields))


def fails(check, source, fields):
    """Whether a module fails a check."""
    run = CHECKS[check]
    try:
        run(Case(source, fields))
    except (Exception, pytest.fail.Exception):
        return True
    return False
