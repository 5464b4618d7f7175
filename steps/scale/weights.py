"""GPT-2's own weights in the class: `python -m steps.step24 --weights FILE`.

FILE is a GPT-2 checkpoint in safetensors format, as published (`h.0.attn.c_attn.weight`
and so on, with or without "transformer." before it). Nothing is downloaded.

GPT-2 multiplies x @ weight (its layer is called Conv1D), so a weight is stored
(in, out); nn.Linear multiplies x @ weight.T and stores (out, in). A square block fits
either way.
"""

import copy
import os
import re
from typing import Any

from steps import tokens
from steps.attention import ROLES, MultiHeadAttention
from steps.compare import close
from steps.errors import UserError, room_for
from steps.layout import Table
from steps.pytorch import loaded, nn, seeded, torch
from steps.scale.machine import check_device
from steps.scale.report import say, show, tell
from steps.words import count, listed, span

HEAD_DIM = 64  # of every published size: 768, 1024, 1280 and 1600 wide
EPSILON = 1e-5  # of GPT-2's layer norms
FORM = "h.{}.attn.c_attn.weight"


class Missing(UserError):
    """The checkpoint lacks a tensor."""


class Checkpoint:
    """The tensors of a checkpoint file, each read when it is asked for, as float32.

    layers: the numbers of the layers whose attention is in the file.
    width: features a token.
    """

    def __init__(self, file: str) -> None:
        try:
            from safetensors import SafetensorError, safe_open
        except ModuleNotFoundError:
            raise UserError(
                "--weights: needs the safetensors package: pip install safetensors"
            ) from None
        if not os.path.isfile(file):
            raise UserError(f"--weights: {file!r} is not a file")
        try:
            asked = f"{file}, {os.path.getsize(file) / 1e9:.1f} GB"
            with room_for(asked, "a checkpoint of fewer layers takes less"):
                self._open = safe_open(file, framework="pt")
        except SafetensorError as error:
            raise UserError(f"{file}: is not a safetensors file ({error})") from None
        except OSError as error:
            raise UserError(f"{file}: cannot be read ({error})") from None
        self.file = file
        self.names = set(self._open.keys())
        found = [
            re.fullmatch(r"(transformer\.)?h\.(\d+)\.attn\.c_attn\.weight", n)
            for n in sorted(self.names)
        ]
        matches = [match for match in found if match]
        if not matches:
            raise UserError(
                f"{file}: is not GPT-2's: it has no tensor {FORM.format(0)}"
            )
        self.prefix = matches[0][1] or ""
        self.layers = sorted(int(match[2]) for match in matches)
        shape = self.shape(FORM.format(self.layers[0]))
        if len(shape) != 2 or shape[0] < 1 or shape[1] != 3 * shape[0]:
            raise UserError(
                f"{file}: {FORM.format(self.layers[0])} has shape {shape}; "
                "GPT-2 stores it (width, 3 * width)"
            )
        self.width = shape[0]

    def shape(self, name: str) -> tuple[int, ...]:
        """Raises Missing when the file has no such tensor."""
        if self.prefix + name not in self.names:
            raise Missing(f"{self.file}: has no tensor {name}")
        return tuple(self._open.get_slice(self.prefix + name).get_shape())

    def rows(self, name: str) -> int:
        """Raises UserError when the tensor has none."""
        if not self.shape(name):
            raise UserError(f"{self.file}: {name} is one number, not a table")
        return self.shape(name)[0]

    def get(self, name: str, *shape: int) -> torch.Tensor:
        """Raises UserError when there is no such tensor or its shape is another."""
        if self.shape(name) != shape:
            raise UserError(
                f"{self.file}: {name} has shape {self.shape(name)}, not {shape}"
            )
        return self._open.get_tensor(self.prefix + name).float()


def attention(
    checkpoint: Checkpoint, layer: int, heads: int, length: int
) -> MultiHeadAttention:
    """The class with a layer's weights."""
    width, form = checkpoint.width, f"h.{layer}.attn."
    c_attn = checkpoint.get(form + "c_attn.weight", width, 3 * width)  # (in, out)
    c_bias = checkpoint.get(form + "c_attn.bias", 3 * width)
    weights = {
        "out_proj.weight": checkpoint.get(form + "c_proj.weight", width, width).T,
        "out_proj.bias": checkpoint.get(form + "c_proj.bias", width),
    }
    for role, rows, bias in zip(ROLES, c_attn.T.chunk(3), c_bias.chunk(3), strict=True):
        weights |= {f"{role}.weight": rows, f"{role}.bias": bias}
    with seeded(0):  # drawn, then replaced; the caller's random state stays
        made = MultiHeadAttention(width, width, length, 0.0, heads, qkv_bias=True)
    loaded(made, weights)
    return made.eval()


def layer_input(
    checkpoint: Checkpoint, layer: int, heads: int, token_ids: list[int], seed: int
) -> tuple[torch.Tensor, str]:
    """What the layer's attention is given, (1, T, width), and where it comes from.

    The text's, through all that comes before in the model, when the file has that;
    drawn numbers when it holds attention alone.
    """
    T, width = len(token_ids), checkpoint.width
    try:
        words, places = checkpoint.rows("wte.weight"), checkpoint.rows("wpe.weight")
        if max(token_ids) >= words:
            raise Missing(
                f"{checkpoint.file}: has {words} rows in wte.weight, too few here"
            )
        stream = checkpoint.get("wte.weight", words, width)[token_ids]
        if places >= T:
            stream = stream + checkpoint.get("wpe.weight", places, width)[:T]
        stream = stream[None]
        for before in range(layer):
            stream = block(checkpoint, before, heads, stream)
        x = normed(checkpoint, f"h.{layer}.ln_1", stream)
    except Missing as missing:
        with seeded(seed):
            x = torch.randn(1, T, width)
        reason = str(missing).removeprefix(f"{checkpoint.file}: ")
        return x, f"drawn from seed {seed}, not the text's, since the file {reason}"
    if places < T:
        raise UserError(
            f"--text: has {T + 1} tokens; this model takes at most {places + 1}"
        )
    last = layer - 1
    layers = f", layers 0 to {last}" if last > 0 else ", layer 0" if layer else ""
    return x, f"the text through the embeddings{layers} and ln_1"


def block(
    checkpoint: Checkpoint, layer: int, heads: int, x: torch.Tensor
) -> torch.Tensor:
    """A whole GPT-2 block: (1, T, width) -> (1, T, width)."""
    width, form = checkpoint.width, f"h.{layer}.mlp."
    x = x + attention(checkpoint, layer, heads, x.shape[1])(
        normed(checkpoint, f"h.{layer}.ln_1", x)
    )
    hidden = normed(checkpoint, f"h.{layer}.ln_2", x) @ checkpoint.get(
        form + "c_fc.weight", width, 4 * width
    ) + checkpoint.get(form + "c_fc.bias", 4 * width)
    hidden = nn.functional.gelu(hidden, approximate="tanh")
    out = hidden @ checkpoint.get(form + "c_proj.weight", 4 * width, width)
    return x + out + checkpoint.get(form + "c_proj.bias", width)


def normed(checkpoint: Checkpoint, name: str, x: torch.Tensor) -> torch.Tensor:
    width = checkpoint.width
    weight, bias = (
        checkpoint.get(f"{name}.{part}", width) for part in ("weight", "bias")
    )
    return nn.functional.layer_norm(x, (width,), weight, bias, EPSILON)


def fused(
    mha: MultiHeadAttention, x: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The class's output by `scaled_dot_product_attention`; each head's weights too."""
    B, T, _ = x.shape
    split = (B, T, mha.num_heads, mha.head_dim)
    q, k, v = (
        layer(x).view(split).transpose(1, 2)
        for layer in (mha.W_query, mha.W_key, mha.W_value)
    )
    contexts = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    future = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)
    scores = (q @ k.transpose(2, 3) / mha.head_dim**0.5).masked_fill(future, -torch.inf)
    return mha.out_proj(contexts.transpose(1, 2).reshape(B, T, -1)), scores.softmax(-1)


def where_stored(width: int) -> Table:
    """Which part of the file is which weight of the class."""
    square = f"({width}, {width})"
    stored = [
        f"c_attn.weight, {span('column', place * width, width)}" for place in range(3)
    ]
    named = zip((*stored, "c_proj.weight"), (*ROLES, "out_proj"), strict=True)
    rows = tuple((part, square, f"{name}.weight", square) for part, name in named)
    return Table(("stored (in, out)", "shape", "transposed (out, in)", "shape"), rows)


def as_stored(mha: MultiHeadAttention) -> MultiHeadAttention:
    """The class with each weight as it is in the file, not transposed."""
    wrong = copy.deepcopy(mha)
    for name in (*ROLES, "out_proj"):
        weight = wrong.get_parameter(f"{name}.weight")
        weight.data = weight.data.T.contiguous()
    return wrong


def looks(weights: torch.Tensor, labels: list[str], follow: int) -> Table:
    """The tokens that each head gives most weight, for one token.

    weights: (1, H, T, T).
    """
    most = min(3, follow + 1)
    rows = []
    for head, row in enumerate(weights[0, :, follow].cpu(), 1):
        top = row.topk(most)
        pairs = zip(top.values.tolist(), top.indices.tolist(), strict=True)
        rows.append((f"head {head}", *(f"{labels[i]} {w:.2f}" for w, i in pairs)))
    return Table(("", *("largest", "second", "third")[:most]), tuple(rows))


@torch.no_grad()
def run(
    file: str, layer: int, values: dict[str, Any], token_ids: list[int], device: str
) -> int:
    """Run a layer's attention on the text, print what came of it; 1 if a check failed.

    Raises UserError for a file, a layer or a text that does not serve.
    """
    check_device(device)
    checkpoint = Checkpoint(file)
    width, layers = checkpoint.width, checkpoint.layers
    there = f"layers {listed([str(number) for number in layers])}"
    if layers == list(range(layers[0], layers[-1] + 1)):
        there = span("layer", layers[0], len(layers))
    if layer not in layers:
        raise UserError(f"--layer: {layer} is not in {file}, which has {there}")
    heads = width // HEAD_DIM if width % HEAD_DIM == 0 else values["H"]
    if width % heads:
        raise UserError(
            f"--heads: {heads} heads do not divide the file's width, {width}"
        )
    inputs = token_ids[:-1]
    mha = attention(checkpoint, layer, heads, len(inputs)).to(device)
    x, origin = layer_input(checkpoint, layer, heads, inputs, values["seed"])
    x = x.to(device)
    output = mha(x)
    other, weights = fused(mha, x)
    given = "another one"
    if close(as_stored(mha)(x), output):
        given = "the same: these weights equal their transposes"
    c_attn = checkpoint.get(FORM.format(layer), width, 3 * width).to(device)
    c_bias = checkpoint.get(f"h.{layer}.attn.c_attn.bias", 3 * width).to(device)
    packed = torch.cat([getattr(mha, role)(x) for role in ROLES], dim=-1)
    follow = values["follow"]
    labels = [tokens.label(tokens.piece_of(values["text"], i)) for i in inputs]

    print(file)
    say(
        f"Layer {layer} (the file has {there}), {width} wide, "
        f"{count(heads, 'head')} of {width // heads}"
    )
    say(f"Input {tuple(x.shape)}: {origin}.")
    show(where_stored(width))
    say(
        "GPT-2 computes x @ weight, nn.Linear x @ weight.T. Put in without "
        f"transposing, every shape still fits, and the output is {given}."
    )
    say()
    say(
        f"Where {labels[follow]} (index {follow}) looks: "
        "its largest weights in each head"
    )
    show(looks(weights, labels, follow))
    return tell(
        [
            (
                "W_query, W_key and W_value side by side give x @ c_attn.weight + "
                "c_attn.bias, within 1e-5 of its largest number",
                close(packed, x @ c_attn + c_bias),
            ),
            (
                "the class equals scaled_dot_product_attention, within 1e-5 of its "
                "largest number",
                close(output, other),
            ),
        ]
    )
