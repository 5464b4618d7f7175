"""The attention modules in attention_cases/, and what the debugger says of them.

Nothing here trusts a file's name or its comments. Each correct module must agree with
plain Python loops over its own weights, under every condition in `CHECKS`; each faulty
one must fail the check that its header names, and must pass them all once the header's
`fix` is put in. Only then is the debugger asked, with the headers blanked.
"""

import functools
import json
import re
import subprocess
import sys
import types
from argparse import Namespace
from pathlib import Path

import pytest

from steps.pytorch import nn, torch

FOLDER = Path(__file__).parent / "attention_cases"
ROOT = FOLDER.parent.parent
CORRECT = sorted((FOLDER / "correct").glob("*.py"))
FAULTY = sorted((FOLDER / "faulty").glob("*.py"))
HEADER = re.compile(r"# (\w+): ?(.*)")

# All distinct, so that no two axes can stand in for each other.
BATCH, TOKENS, CONTEXT, HEADS, WIDTH, D_IN = 2, 5, 7, 3, 4, 10


def header_of(source):
    """The header's fields; `fix` as {line: right code}."""
    fields, fixes = {}, {}
    for line in source.splitlines():
        match = HEADER.match(line)
        if not match:
            break
        if match[1] == "fix":
            number, code = match[2].split(":", 1)
            fixes[int(number)] = code.strip()
        else:
            fields[match[1]] = match[2]
    return fields, fixes


def blanked(source):
    """The source without what its header says, every line number kept."""
    lines = source.splitlines()
    for number, line in enumerate(lines):
        if not HEADER.match(line):
            break
        lines[number] = "#"
    return "\n".join(lines) + "\n"


def fixed(source, fixes):
    """The source with the header's right lines in place of the wrong ones."""
    lines = source.splitlines()
    for number, code in fixes.items():
        wrong = lines[number - 1]
        lines[number - 1] = wrong[: len(wrong) - len(wrong.lstrip())] + code
    return "\n".join(lines) + "\n"


def wrong_lines(fields):
    """The line numbers that a report may name."""
    named = (fields.get(key, "") for key in ("line", "seen_at", "also_accept"))
    return {int(number) for text in named for number in text.split()}


# What a header's `qkvo` may use: each returns (weight, bias), rows head by head.


def pair(layer):
    """(weight, bias) of a Linear, or the pair itself."""
    return layer if isinstance(layer, tuple) else (layer.weight, layer.bias)


def part(layer, index, parts=3):
    """One of several equal blocks of rows of a packed layer."""
    weight, bias = pair(layer)
    bias = None if bias is None else bias.chunk(parts)[index]
    return weight.chunk(parts)[index], bias


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


class Case:
    """One source, to be built at any size, with its weights found by the header."""

    def __init__(self, source, fields):
        self.fields = fields
        self.code = compile(source, "case", "exec", dont_inherit=True)

    def takes(self, name):
        return re.search(rf"\b{name}\b", self.fields["build"]) is not None

    def sizes(self, **changes):
        """What `build` may name; d_in is d_out where the module has one width."""
        d_out = HEADS * WIDTH
        sizes = {"head_dim": WIDTH, "num_heads": HEADS, "context_length": CONTEXT}
        sizes |= {"d_out": d_out, "d_in": D_IN if self.takes("d_in") else d_out}
        return sizes | {"dropout": 0.0, "bias": False} | changes

    def build(self, dtype=torch.float64, **changes):
        """A new module with the same random weights each time."""
        scope = types.ModuleType("case")
        torch.manual_seed(1)
        exec(self.code, scope.__dict__)
        names = vars(scope) | self.sizes(**changes) | {"Namespace": Namespace}
        return eval(self.fields["build"], names).to(dtype).eval()

    def inputs(self, tokens=TOKENS, dtype=torch.float64):
        generator = torch.Generator().manual_seed(2)
        shape = (BATCH, tokens, self.sizes()["d_in"])
        return torch.randn(shape, generator=generator).to(dtype)

    def run(self, module, x):
        """The output tensor, from a tuple too."""
        call = self.fields.get("call", "m(x)")
        out = eval(call, {"m": module, "x": x, "torch": torch})
        return out[0] if isinstance(out, tuple) else out

    def weights(self, module):
        """(weight, bias) of q, k, v and the output layer (or None)."""
        helpers = (part, cat, cat_columns, rows, columns, packed_rows)
        names = {helper.__name__: helper for helper in helpers} | self.sizes()
        names |= {"m": module, "torch": torch}
        q, k, v, out = eval(self.fields["qkvo"], names)
        return pair(q), pair(k), pair(v), None if out is None else pair(out)

    def loops(self, module, x):
        """The output by plain loops: the specification.

        Each token of each head looks at the tokens up to itself, so there is no mask
        to get wrong. Returns (output (B, T, ...), values (B, T, H*D), shares), with
        shares[h, i] (B, i+1) the weights of token i in head h.
        """
        with torch.no_grad():
            q, k, v, out = self.weights(module)
            q, k, v = (nn.functional.linear(x, *layer) for layer in (q, k, v))
            context, shares = torch.zeros_like(q), {}
            for h in range(HEADS):
                mine = slice(h * WIDTH, (h + 1) * WIDTH)
                for i in range(x.shape[1]):
                    past = slice(0, i + 1)
                    scores = (q[:, i : i + 1, mine] * k[:, past, mine]).sum(-1)
                    raised = (scores / WIDTH**0.5).exp()
                    share = raised / raised.sum(1, keepdim=True)
                    context[:, i, mine] = (share[..., None] * v[:, past, mine]).sum(1)
                    shares[h, i] = share
            if out is not None:
                context = nn.functional.linear(context, *out)
            return context, v, shares


def close(left, right, tolerance=1e-5):
    assert left.shape == right.shape, (left.shape, right.shape)
    assert torch.isfinite(left).all(), "not finite"
    assert (left - right).abs().max() <= tolerance, (left - right).abs().max()


def check_eval(case):
    """The loops' numbers for one token, some, and as many as the module takes."""
    module = case.build()
    for tokens in (TOKENS, 1, CONTEXT):
        x = case.inputs(tokens)
        before = x.clone()
        close(case.run(module, x), case.loops(module, x)[0])
        assert torch.equal(x, before), "the input was changed"


def check_longer(case):
    """More tokens than context_length: right numbers or an error, never wrong ones."""
    module, x = case.build(), case.inputs(CONTEXT + 3)
    try:
        out = case.run(module, x)
    except (RuntimeError, ValueError, IndexError, AssertionError):
        return
    close(out, case.loops(module, x)[0])


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
    if not case.takes("dropout"):
        return
    x = case.inputs()
    module = case.build(dropout=0.0).train()
    close(case.run(module, x), case.loops(module, x)[0])
    module = case.build(dropout=0.5).train()
    for name in case.fields.get("also_drops", "").split():
        module.get_submodule(name).p = 0.0
    out_layer = case.weights(module)[3]
    _, values, shares = case.loops(module, x)
    found = {0: set(), 1: set(), 2: set()}
    with torch.no_grad():
        outputs = [case.run(module, x) for _ in range(6)]
    for b, i in ((b, i) for b in range(BATCH) for i in found):
        choices = torch.arange(2 ** (i + 1))
        kept = (choices[:, None] >> torch.arange(i + 1) & 1).to(x.dtype)
        possible = torch.zeros(1, HEADS * WIDTH, dtype=x.dtype)
        for h in range(HEADS):
            mine = slice(h * WIDTH, (h + 1) * WIDTH)
            one = torch.zeros(len(choices), 1, HEADS * WIDTH, dtype=x.dtype)
            one[:, 0, mine] = (2 * kept * shares[h, i][b]) @ values[b, : i + 1, mine]
            possible = (one + possible).flatten(0, 1)
        if out_layer is not None:
            possible = nn.functional.linear(possible, *out_layer)
        for output in outputs:
            error, nearest = (possible - output[b, i]).abs().amax(1).min(0)
            assert error < 1e-5, f"no choice of dropped weights gives token {i}"
            found[i].add(nearest.item())
    assert all(len(seen) > 2 for seen in found.values()), "nothing was dropped"


def check_half(case):
    """Half precision: finite, and near the loops in double precision."""
    module = case.build()
    wanted = case.loops(module, case.inputs())[0]
    with torch.no_grad():
        got = case.run(module.half(), case.inputs(dtype=torch.float16))
    close(got.double(), wanted, 0.05)


def check_meta(case):
    """The module can move: every tensor goes along to another device."""
    module = case.build().to("meta")
    out = case.run(module, case.inputs().to("meta"))
    assert out.device.type == "meta"


def check_registered(case):
    """parameters() holds the four weights, each once, and no other matrix."""
    module = case.build()
    wanted = sum(layer[0].numel() for layer in case.weights(module) if layer)
    held = [p for p in module.parameters() if p.dim() > 1]
    assert sum(p.numel() for p in held) == wanted
    out = case.run(module, case.inputs())
    (out * torch.randn_like(out)).sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in held)


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
        uneven = HEADS * WIDTH + 1
        with pytest.raises((ValueError, AssertionError)):
            case.build(d_out=uneven, d_in=D_IN if case.takes("d_in") else uneven)


def body(source):
    """The source without its header."""
    lines = source.splitlines()
    while lines and HEADER.match(lines[0]):
        del lines[0]
    return "\n".join(lines)


@functools.cache
def prove(source, fields):
    """All checks. Many faulty files have the same right form: proved once."""
    case = Case(source, dict(fields))
    for check in CHECKS.values():
        check(case)


def proof_of(source, fields):
    names = ("build", "call", "qkvo", "also_drops")
    prove(body(source), tuple((n, fields[n]) for n in names if n in fields))


CHECKS = {
    name.removeprefix("check_"): check
    for name, check in list(globals().items())
    if name.startswith("check_")
}


def name_of(path):
    return path.stem


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Tensors this small only wait for one another; and leave the seed as it was."""
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.set_rng_state(state)


@pytest.fixture(scope="module", autouse=True)
def debugger(request, tmp_path_factory):
    """One run of the debugger over all files, begun before the proofs, beside them.

    Yields (process, its two output files, {copy's name: path}), or None where no test
    that was selected asks for it.
    """
    if not any("answers" in item.fixturenames for item in request.session.items):
        yield None
        return
    folder = tmp_path_factory.mktemp("cases")
    copies = {}
    for number, path in enumerate(CORRECT + FAULTY):
        copy = folder / f"attention_{number}.py"
        copy.write_text(blanked(path.read_text()))
        copies[copy.name] = path
    command = [sys.executable, "-m", "steps.step23", "--json"]
    command += [str(folder / name) for name in copies]
    files = folder / "stdout", folder / "stderr"
    with files[0].open("w") as stdout, files[1].open("w") as stderr:
        process = subprocess.Popen(command, cwd=ROOT, stdout=stdout, stderr=stderr)
    yield process, files, copies
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def answers(debugger):
    """The debugger's answers, by the case's path."""
    process, (stdout, stderr), copies = debugger
    assert process.wait() == 1, stderr.read_text()
    lines = [json.loads(line) for line in stdout.read_text().splitlines()]
    return {copies[Path(answer["file"]).name]: answer for answer in lines}


@pytest.mark.parametrize("path", CORRECT, ids=name_of)
def test_correct_module_agrees_with_plain_loops(path):
    source = path.read_text()
    fields, _ = header_of(source)
    assert fields["good"]
    proof_of(source, fields)


@pytest.mark.parametrize("path", FAULTY, ids=name_of)
def test_faulty_module_fails_and_its_fix_passes(path):
    source = path.read_text()
    fields, fixes = header_of(source)
    assert re.fullmatch(r"[a-z0-9-]+", fields["kind"])
    assert fixes
    for name in fields["fails"].split():
        try:
            CHECKS[name](Case(source, fields))
        except (Exception, pytest.fail.Exception):
            continue
        raise AssertionError(f"the fault does not show in {name}")
    proof_of(fixed(source, fixes), fields)


def test_every_family_and_two_styles_of_each_kind():
    fields = [header_of(path.read_text())[0] for path in FAULTY]
    families = {entry["bug"].split(":")[0] for entry in fields}
    assert families >= {
        "projection", "split", "nn.MultiheadAttention", "scores", "scale", "mask",
        "softmax", "dropout", "values", "merge", "output", "constructor", "training",
        "device", "precision",
    }  # fmt: skip
    kinds = [entry["kind"] for entry in fields]
    assert not [kind for kind in kinds if kinds.count(kind) < 2]


@pytest.mark.parametrize("path", CORRECT, ids=name_of)
def test_debugger_clears_the_correct_module(answers, path):
    assert answers[path]["verdict"] == "no fault", answers[path].get("message")


# What the debugger does not find yet, and why; strict, so that finding one is noticed.
BEYOND = {
    "block_mask_from_zero": "slices of a range of tokens hold no stage: a line off",
    "dropout_default_rate": "a rate that is never read may be meant so",
    "heads_reversed_for_values_only": "heads in reverse order have no reading",
    "notebook_width_not_checked": "rounding head_dim down is allowed elsewhere",
    "vmapped_over_tokens": "inside torch.vmap only the result is seen",
    "vmapped_softmax_of_columns": "inside torch.vmap only the result is seen",
}


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path,
            marks=[pytest.mark.xfail(reason=BEYOND[name_of(path)], strict=True)]
            if name_of(path) in BEYOND
            else [],
        )
        for path in FAULTY
    ],
    ids=name_of,
)
def test_debugger_names_the_first_wrong_line(answers, path):
    fields, _ = header_of(path.read_text())
    assert answers[path]["verdict"] == "fault", answers[path].get("message")
    assert answers[path]["line"] in wrong_lines(fields), answers[path].get("message")
