"""`python -m steps.step24 --weights FILE`, on small files of GPT-2's form made here."""

import array
import json
import math
import struct
import sys
from pathlib import Path

import pytest
from program import ROOT, Ran, within

from steps.compare import close
from steps.pytorch import torch
from steps.scale import command, weights
from steps.walk.command import step

WIDTH, WORDS, PLACES = 12, 40000, 8
IDS = [464, 7850, 3331, 373]


def show(file: Path, *flags: str) -> Ran:
    arguments = ["--weights", str(file), *flags]
    return within(lambda: step(str(ROOT / "steps" / "step24.py"), arguments, command))


def write(file: Path, tensors: dict[str, torch.Tensor]) -> Path:
    """The format by hand: a length, a JSON header, then the numbers."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in tensors.items():
        numbers = array.array("f", tensor.flatten().tolist())
        if sys.byteorder == "big":
            numbers.byteswap()
        ends = [len(data), len(data) + 4 * tensor.numel()]
        header[name] = {"dtype": "F32", "shape": [*tensor.shape], "data_offsets": ends}
        data += numbers.tobytes()
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return file


def tensors(prefix: str = "", layers: int = 2, width: int = WIDTH) -> dict:
    """A whole small model's tensors, by GPT-2's names."""
    generator = torch.Generator().manual_seed(5)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * 0.3

    made = {"wte.weight": torch.zeros(WORDS, width), "wpe.weight": draw(PLACES, width)}
    made["wte.weight"][IDS] = draw(len(IDS), width)
    for layer in range(layers):
        for name, shape in {
            "ln_1.weight": (width,),
            "ln_1.bias": (width,),
            "attn.bias": (1, 1, PLACES, PLACES),  # the stored mask, as published
            "attn.c_attn.weight": (width, 3 * width),
            "attn.c_attn.bias": (3 * width,),
            "attn.c_proj.weight": (width, width),
            "attn.c_proj.bias": (width,),
            "ln_2.weight": (width,),
            "ln_2.bias": (width,),
            "mlp.c_fc.weight": (width, 4 * width),
            "mlp.c_fc.bias": (4 * width,),
            "mlp.c_proj.weight": (4 * width, width),
            "mlp.c_proj.bias": (width,),
        }.items():
            made[f"h.{layer}.{name}"] = draw(*shape)
    return {prefix + name: tensor for name, tensor in made.items()}


def attention_alone(width: int = WIDTH) -> dict[str, torch.Tensor]:
    return {n: t for n, t in tensors(width=width).items() if ".attn.c_" in n}


@pytest.fixture
def whole(tmp_path):
    return write(tmp_path / "model.safetensors", tensors())


@pytest.mark.parametrize("prefix", ["", "transformer."])
@pytest.mark.parametrize("layer", [0, 1])
def test_a_layer_of_a_checkpoint(tmp_path, prefix, layer):
    file = write(tmp_path / "model.safetensors", tensors(prefix))
    ran = show(file, "--layer", str(layer))
    assert (ran.code, ran.err) == (0, "")
    assert f"Layer {layer} (the file has layers 0 to 1), 12 wide" in ran.out
    assert "2 heads of 6" in ran.out
    assert "the text through the embeddings" in ran.out
    assert "c_attn.weight, columns 12 to 23" in ran.out
    assert "the output is another one" in ran.out
    assert ran.out.count("holds") == 2


def loops(model: dict[str, list], layer: int, stream: list, heads: int) -> list:
    """GPT-2's attention of one layer in plain loops: x @ weight, as it is stored."""
    weight, bias = (model[f"h.{layer}.attn.c_attn.{p}"] for p in ("weight", "bias"))
    qkv = [product(row, weight, bias) for row in stream]
    size = WIDTH // heads
    joined = []
    for i in range(len(qkv)):
        out: list[float] = []
        for head in range(heads):
            q, k, v = (
                range(r * WIDTH + head * size, r * WIDTH + (head + 1) * size)
                for r in range(3)
            )
            scores = [
                sum(qkv[i][a] * qkv[j][b] for a, b in zip(q, k, strict=True))
                for j in range(i + 1)
            ]
            exps = [math.exp(s / math.sqrt(size)) for s in scores]
            out += [
                sum(e * qkv[j][c] for j, e in enumerate(exps)) / sum(exps) for c in v
            ]
        joined.append(out)
    weight, bias = (model[f"h.{layer}.attn.c_proj.{p}"] for p in ("weight", "bias"))
    return [product(row, weight, bias) for row in joined]


def product(row: list, weight: list, bias: list) -> list:
    return [
        sum(x * weight[i][o] for i, x in enumerate(row)) + bias[o]
        for o in range(len(bias))
    ]


def normed(row: list, weight: list, bias: list) -> list:
    mean = sum(row) / len(row)
    spread = math.sqrt(sum((x - mean) ** 2 for x in row) / len(row) + 1e-5)
    return [
        (x - mean) / spread * w + b for x, w, b in zip(row, weight, bias, strict=True)
    ]


def gelu(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def test_two_layers_are_gpt_2_s_written_as_loops(whole):
    model = {n: t.tolist() for n, t in tensors().items() if n != "wte.weight"}
    words = tensors()["wte.weight"][IDS].tolist()
    stream = [
        [a + b for a, b in zip(word, place, strict=True)]
        for word, place in zip(words, model["wpe.weight"], strict=False)
    ]
    checkpoint = weights.Checkpoint(str(whole))
    for layer in range(2):
        part = {n.removeprefix(f"h.{layer}."): v for n, v in model.items()}
        inside = [normed(r, part["ln_1.weight"], part["ln_1.bias"]) for r in stream]
        x, _ = weights.layer_input(checkpoint, layer, 2, IDS, 1)
        assert close(x[0], torch.tensor(inside), 1e-4)
        attended = loops(model, layer, inside, 2)
        output = weights.attention(checkpoint, layer, 2, len(IDS))(x)
        assert close(output[0].detach(), torch.tensor(attended), 1e-4)
        stream = [
            [a + b for a, b in zip(row, more, strict=True)]
            for row, more in zip(stream, attended, strict=True)
        ]
        for row in stream:
            hidden = normed(row, part["ln_2.weight"], part["ln_2.bias"])
            hidden = product(hidden, part["mlp.c_fc.weight"], part["mlp.c_fc.bias"])
            hidden = [gelu(number) for number in hidden]
            more = product(hidden, part["mlp.c_proj.weight"], part["mlp.c_proj.bias"])
            row[:] = [a + b for a, b in zip(row, more, strict=True)]


def test_attention_alone_runs_on_drawn_numbers_and_says_so(tmp_path):
    file = write(tmp_path / "part.safetensors", attention_alone())
    ran = show(file, "--heads", "3")
    assert (ran.code, ran.err) == (0, "")
    assert "3 heads of 4" in ran.out
    assert "drawn from seed 123, not the text's" in ran.out
    assert "the file has no tensor wte.weight" in ran.out


def test_heads_of_64_as_in_every_published_size(tmp_path):
    file = write(tmp_path / "part.safetensors", attention_alone(width=128))
    assert "128 wide, 2 heads of 64" in show(file, "--heads", "5").out


def test_symmetric_weights_hide_the_transpose_and_the_text_says_so(tmp_path):
    made = attention_alone()
    for layer in range(2):
        name = f"h.{layer}.attn.c_attn.weight"
        blocks = [(part + part.T) / 2 for part in made[name].chunk(3, dim=1)]
        made[name] = torch.cat(blocks, dim=1)
        name = f"h.{layer}.attn.c_proj.weight"
        made[name] = (made[name] + made[name].T) / 2
    ran = show(write(tmp_path / "part.safetensors", made))
    assert ran.code == 0
    assert "the output is the same: these weights equal their transposes" in " ".join(
        ran.out.split()
    )


def refused(ran: Ran, says: str) -> None:
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert ran.err.count("\n") == 1


def test_a_missing_layer(whole):
    refused(show(whole, "--layer", "7"), "--layer: 7 is not in ")
    refused(show(whole, "--layer", "7"), "which has layers 0 to 1")


def test_heads_that_do_not_divide_the_width(whole):
    refused(show(whole, "--heads", "5"), "--heads: 5 heads do not divide")


def test_a_text_longer_than_the_model_takes(whole):
    text = "The river bank was" * 3
    refused(show(whole, "--text", text), "this model takes at most 9")


@pytest.mark.parametrize(
    ("name", "shape", "says"),
    [
        ("h.0.attn.c_attn.weight", (36, 12), "GPT-2 stores it (width, 3 * width)"),
        ("h.1.attn.c_attn.weight", (36, 12), "shape (36, 12), not (12, 36)"),
        ("h.1.attn.c_attn.bias", (12,), "has shape (12,), not (36,)"),
        ("h.1.attn.c_proj.weight", (12, 36), "has shape (12, 36), not (12, 12)"),
        ("h.1.ln_1.weight", (36,), "has shape (36,), not (12,)"),
    ],
)
def test_wrong_shapes(tmp_path, name, shape, says):
    made = tensors() | {name: torch.zeros(shape)}
    file = write(tmp_path / "model.safetensors", made)
    refused(show(file, "--layer", "1"), says)
    refused(show(file, "--layer", "1"), name)


def test_a_layer_without_its_bias(tmp_path):
    made = tensors()
    del made["h.0.attn.c_proj.bias"]
    file = write(tmp_path / "model.safetensors", made)
    refused(show(file), "has no tensor h.0.attn.c_proj.bias")


def test_files_that_are_not_checkpoints(tmp_path):
    refused(show(tmp_path / "none"), "none' is not a file")
    refused(show(tmp_path), "is not a file")
    text = tmp_path / "text.safetensors"
    text.write_text("Not a checkpoint, in the least; so it is refused.")
    refused(show(text), "is not a safetensors file")
    other = write(tmp_path / "other.safetensors", {"a": torch.zeros(2)})
    refused(show(other), "is not GPT-2's: it has no tensor h.0.attn.c_attn.weight")


def test_without_the_package(whole, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    refused(show(whole), "needs the safetensors package: pip install safetensors")
