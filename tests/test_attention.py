"""The attention classes as a reader uses them, and the steps that show them."""

import io
import re
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from bench_attention import Direct, peak
from program import one_step

from steps import attention, step22
from steps.attention import (
    CausalAttention,
    MultiHeadAttention,
    MultiHeadAttentionWrapper,
    SelfAttention_v1,
    SelfAttention_v2,
)
from steps.claims import step22 as claims22
from steps.pytorch import nn, torch
from steps.walk.order import needs
from steps.walk.recorder import Recorder
from steps.walk.source import Place

MULTI_HEAD = {
    "d_in": 4,
    "d_out": 6,
    "context_length": 8,
    "dropout": 0.0,
    "num_heads": 2,
}


@pytest.fixture(autouse=True)
def own_random_state() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(123)
        yield


@pytest.fixture
def mha() -> MultiHeadAttention:
    return MultiHeadAttention(**MULTI_HEAD)


def one_of_each() -> list[nn.Module]:
    return [
        SelfAttention_v1(4, 6),
        SelfAttention_v2(4, 6),
        CausalAttention(4, 6, 8, 0.0),
        MultiHeadAttentionWrapper(4, 3, 8, 0.0, 2),
        MultiHeadAttention(4, 6, 8, 0.0, 2),
    ]


@pytest.mark.parametrize("kind", [MultiHeadAttention, MultiHeadAttentionWrapper])
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"num_heads": 0}, "num_heads must be at least 1, got 0"),
        ({"d_in": 0}, "d_in must be at least 1, got 0"),
        ({"d_out": -6}, "d_out must be at least 1, got -6"),
        ({"context_length": 0}, "context_length must be at least 1, got 0"),
        ({"dropout": 1.5}, "from 0 to 1, got 1.5"),
        ({"dropout": -0.1}, "from 0 to 1, got -0.1"),
        ({"dropout": float("nan")}, "from 0 to 1, got nan"),
    ],
)
def test_sizes_that_no_layer_can_have(
    kind: type[nn.Module], wrong: dict[str, Any], says: str
) -> None:
    before = torch.get_rng_state()
    with pytest.raises(ValueError, match=says):
        kind(**{**MULTI_HEAD, **wrong})
    assert torch.equal(torch.get_rng_state(), before)  # refused before any draw


@pytest.mark.parametrize(("d_out", "num_heads"), [(6, 4), (2, 4), (1, 2), (768, 7)])
def test_heads_that_do_not_divide(d_out: int, num_heads: int) -> None:
    says = f"d_out must be divisible by num_heads, and {d_out} .* {num_heads}$"
    with pytest.raises(ValueError, match=says):
        MultiHeadAttention(4, d_out, 8, 0.0, num_heads)


@pytest.mark.parametrize("module", one_of_each(), ids=lambda m: type(m).__name__)
def test_inputs_that_do_not_fit(module: nn.Module) -> None:
    one = "SelfAttention" in type(module).__name__
    axes = re.escape("(num_tokens, d_in)" if one else "(b, num_tokens, d_in)")
    with pytest.raises(ValueError, match=axes):
        module(torch.zeros(4))
    with pytest.raises(ValueError, match=axes):
        module(torch.zeros(1, 5, 4) if one else torch.zeros(5, 4))
    with pytest.raises(ValueError, match="d_in = 4 features, got 6"):
        module(torch.zeros(5, 6) if one else torch.zeros(1, 5, 6))
    if not one:
        with pytest.raises(ValueError, match=r"9 tokens, .* context_length = 8"):
            module(torch.zeros(1, 9, 4))
        assert module(torch.zeros(1, 8, 4)).shape == (1, 8, 6)


def test_d_out_is_of_one_head_or_of_all() -> None:
    x = torch.randn(2, 5, 4)
    assert MultiHeadAttentionWrapper(4, 6, 5, 0.0, 3)(x).shape == (2, 5, 18)
    assert MultiHeadAttention(4, 6, 5, 0.0, 3)(x).shape == (2, 5, 6)


@pytest.mark.parametrize("length", [1, 3, 7, 8])
def test_a_shorter_input_gives_the_first_rows(
    mha: MultiHeadAttention, length: int
) -> None:
    x = torch.randn(3, 8, 4)
    torch.testing.assert_close(mha(x[:, :length]), mha(x)[:, :length])


def test_an_input_that_is_not_contiguous(mha: MultiHeadAttention) -> None:
    turned = torch.randn(5, 3, 4).transpose(0, 1)
    torch.testing.assert_close(mha(turned), mha(turned.contiguous()))
    strided = torch.randn(3, 5, 8)[:, :, ::2]
    torch.testing.assert_close(mha(strided), mha(strided.contiguous()))


def test_the_future_is_not_seen(mha: MultiHeadAttention) -> None:
    x = torch.randn(1, 8, 4)
    changed = x.clone()
    changed[:, 5] += 1
    before, after = mha(x), mha(changed)
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.equal(before[:, 5:], after[:, 5:])


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize(
    ("dtype", "atol"),
    [(torch.float16, 5e-3), (torch.bfloat16, 4e-2), (torch.float64, 1e-6)],
)
def test_other_dtypes(dtype: torch.dtype, atol: float, train: bool) -> None:
    for module in one_of_each():
        module.train(train)
        x = torch.randn(1, 5, 4)
        if "SelfAttention" in type(module).__name__:
            x = x[0]
        expected = module(x)
        got = module.to(dtype)(x.to(dtype))
        assert got.dtype == dtype
        torch.testing.assert_close(got.float(), expected, rtol=0, atol=atol)


def test_dropout_in_training_only() -> None:
    mha = MultiHeadAttention(4, 6, 8, 0.5, 2)
    x = torch.randn(1, 8, 4)
    assert not torch.equal(mha(x), mha(x))
    mha.eval()
    assert torch.equal(mha(x), mha(x))
    all_dropped = MultiHeadAttention(4, 6, 8, 1.0, 2)
    torch.testing.assert_close(
        all_dropped(x), all_dropped.out_proj.bias.expand(1, 8, 6)
    )


def test_another_device() -> None:
    """The mask goes where the weights go; "meta" has shapes and no numbers."""
    for module in one_of_each()[2:]:
        x = torch.empty(2, 5, 4, device="meta")
        assert module.to("meta")(x).shape == (2, 5, 6)


@pytest.mark.parametrize("index", range(5))
def test_weights_go_through_a_file(index: int) -> None:
    saved = one_of_each()[index]
    file = io.BytesIO()
    torch.save(saved.state_dict(), file)
    file.seek(0)
    other = one_of_each()[index]
    other.load_state_dict(torch.load(file, weights_only=True))
    x = torch.randn(5, 4) if index < 2 else torch.randn(2, 5, 4)
    assert torch.equal(other(x), saved(x))


def test_a_checkpoint_of_the_chapters_own_class(mha: MultiHeadAttention) -> None:
    """Its names, in its order, and a mask of ones and zeros in float32."""
    names = (
        "mask W_query.weight W_key.weight W_value.weight out_proj.weight out_proj.bias"
    )
    assert list(mha.state_dict()) == names.split()
    x = torch.randn(1, 8, 4)
    before = mha(x)
    theirs = {**mha.state_dict(), "mask": torch.triu(torch.ones(8, 8), diagonal=1)}
    mha.load_state_dict(theirs)
    assert torch.equal(mha(x), before)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled(mha: MultiHeadAttention, backend: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(mha, backend=backend, fullgraph=True, dynamic=True)
    for length in (8, 5, 2):
        x = torch.randn(2, length, 4)
        torch.testing.assert_close(compiled(x), mha(x))
    with pytest.raises(ValueError, match="has 9 tokens"):
        mha(torch.zeros(1, 9, 4))


def test_exported_with_any_number_of_tokens(mha: MultiHeadAttention) -> None:
    num_tokens = torch.export.Dim("num_tokens", max=mha.context_length - 1)
    shapes = {"x": {1: num_tokens}}
    exported = torch.export.export(mha, (torch.randn(1, 4, 4),), dynamic_shapes=shapes)
    module = exported.module()
    for length in (2, 3, 7):
        x = torch.randn(1, length, 4)
        torch.testing.assert_close(module(x), mha(x))
    whole = torch.export.export(mha, (torch.randn(1, 8, 4),))
    x = torch.randn(1, 8, 4)
    torch.testing.assert_close(whole.module()(x), mha(x))


@pytest.mark.parametrize(
    ("b", "num_tokens", "d_in", "d_out", "num_heads", "dropout"),
    [(1, 4, 4, 6, 2, 0.0), (2, 64, 32, 32, 4, 0.0), (2, 64, 32, 32, 4, 0.5)],
)
def test_no_more_memory_than_the_direct_transcription(
    b: int, num_tokens: int, d_in: int, d_out: int, num_heads: int, dropout: float
) -> None:
    mha = MultiHeadAttention(d_in, d_out, num_tokens, dropout, num_heads)
    x = torch.randn(b, num_tokens, d_in)
    torch.testing.assert_close(mha.eval()(x), Direct(mha)(x))
    mha.train()
    assert peak(mha, x) <= peak(Direct(mha), x)


# What the article says, in its order, and where step 21 or 22 says it of this run.
ARTICLE = [
    (21, "Which shape does it return?"),
    (21, "x of shape (b, num_tokens, d_in), and the constructor was given d_out"),
    (21, "make new numbers, and which only rearrange numbers that are there already"),
    (21, "10 computed, 10 rearranged and 1 copied"),
    (21, "What is computed is attention as with one head"),
    (21, "3 linear layers project queries, keys and values for all heads at once"),
    (21, "3 views and 3 transposes give each head its slice of them"),
    (21, "the final view and out_proj join the heads' results"),
    (21, "(b, num_tokens, d_out) = (1, 4, 6): not the (1, 4, 4) that x came in with"),
    (21, "from d_in = 4 to d_out = 6, the number of axes 3 -> 4 -> 3"),
    (21, "One projection per role, from d_in = 4 to d_out = 6, all heads side by side"),
    (21, "No weight has an axis for heads"),
    (21, "d_out must be divisible by num_heads, and 6 is not divisible by 4"),
    (21, "head_dim = d_out / num_heads = 6 / 2 = 3"),
    (21, "No slices of equal width would use all of it"),
    (21, "column of queries 0 1 2 | 3 4 5 belongs to head 1 1 1 | 2 2 2"),
    (21, "article's head 0: columns 0 to 2; head 2 is its head 1: columns 3 to 5"),
    (21, "queries_by_token = queries.view(b, num_tokens, num_heads, head_dim)"),
    (21, "(b, num_tokens, num_heads, head_dim) | transpose | transpose"),
    (21, "= (1, 4, 2, 3), rearranged head_queries head_keys head_values"),
    (21, "(b, num_heads, num_tokens, head_dim) +----- @ ----+ transpose"),
    (21, "no head is built into them"),
    (21, "The token axis is there twice only in attn_scores, blocked and attn_weights"),
    (21, "each token's query is compared with every token's key"),
    (21, "attn_scores = head_queries @ head_keys.transpose(2, 3)"),
    (21, "(b, num_heads, num_tokens, num_tokens) | / head_dim**0.5"),
    (21, "= (1, 2, 4, 4), computed"),
    (21, "head_contexts (b, num_heads, num_tokens, head_dim) | transpose, contiguous"),
    (21, "contexts_by_token (b, num_tokens, num_heads, head_dim) | view"),
    (21, "= (1, 4, 2, 3), copied joined_contexts (b, num_tokens, d_out)"),
    (
        21,
        "because d_out = num_heads * head_dim (6 = 2 * 3): the heads' results are side",
    ),
    (21, "out_proj is optional"),
    (21, "draws on all 6 of them, whichever head they are from"),
    (21, "print the shape after each line and hold it against this path"),
    (21, "What comes after inherits the wrong shape"),
    (21, "the error message at the end is usually a symptom and not the cause"),
    (22, "stacks complete single heads, each with weight matrices of its own"),
    (22, "has one wide projection per role and splits its result"),
    (22, "+- heads[0].W_query (3, 4) queries (1, 4, 6)"),
    (22, "Keys and values are projected and split in the same two ways"),
    (22, "the class gives the wrapper's output, to float precision"),
    (22, "the wrapper's 6 matrices, (3, 4) each, and the class's 3, (6, 4) each"),
    (22, "d_out is the width of one head in the wrapper (3 here) and of all heads"),
    (22, "only the class has out_proj"),
]


@pytest.fixture(scope="module")
def shown() -> dict[int, str]:
    blocks = {}
    for number in (21, 22):
        ran = one_step(number)
        assert (ran.code, ran.err) == (0, "")
        blocks[number] = " ".join(ran.out.split())
    return blocks


@pytest.mark.parametrize(("number", "says"), ARTICLE)
def test_the_articles_sentences(shown: dict[int, str], number: int, says: str) -> None:
    assert says in shown[number]


def test_the_first_wrong_shape_and_the_line_that_complains() -> None:
    said = " ".join(one_step(23).out.split())
    assert (
        "the first that differs from the expected one is where the bug begins" in said
    )
    assert "the error message at the end is usually a symptom, not the cause" in said
    assert "raises RuntimeError: The size of tensor a" in said
    assert "at the first line: q is (1, 4, 3, 2), and is to be (1, 2, 4, 3)" in said


def test_the_class_gives_the_walks_numbers_bit_for_bit(shown: dict[int, str]) -> None:
    names = "queries, queries_by_token, head_queries, head_keys, attn_weights, "
    names += "head_contexts, joined_contexts and context_vec"
    assert f"holds {names}: the walk's numbers, bit for bit" in shown[21]


def test_forward_is_printed_whole(shown: dict[int, str]) -> None:
    """Every line of it that is not empty, after its number in the file."""
    file = Path(attention.__file__).read_text(encoding="utf-8").splitlines()
    start = file.index("class MultiHeadAttention(nn.Module):")
    start = next(i for i in range(start, len(file)) if "@takes(" in file[i])
    assert file[-1] == "        return context_vec"
    numbered = [f"{n + 1} {file[n]}" for n in range(start, len(file)) if file[n]]
    assert " ".join(" ".join(numbered).split()) in shown[21]


def test_both_classes_counted(shown: dict[int, str]) -> None:
    """At this size, and at 768 and 12 heads by hand: 12 x 3 x 64 x 768, and so on."""
    assert "matrices for q, k, v 6 3 36 3" in shown[22]
    assert "parameters 72 114 1,769,472 2,360,064" in shown[22]
    assert "matrix multiplications 10 6 60 6" in shown[22]


@pytest.mark.parametrize("number", [21, 22])
@pytest.mark.parametrize(
    "flags",
    [
        "--heads 1",
        "--head-dim 1",
        "--heads 1 --head-dim 1 --d-in 1",
        "--d-in 6 --dropout 0",
        "--heads 30 --head-dim 5",
        "--text=The\x00river --heads 5",
    ],
)
def test_other_sizes(number: int, flags: str) -> None:
    ran = one_step(number, *(flag.replace("\x00", " ") for flag in flags.split(" ")))
    assert (ran.code, ran.err) == (0, "")
    assert "FAILS" not in ran.out
    assert max(map(len, ran.out.splitlines())) <= 100
    said = " ".join(ran.out.split())
    if number == 21:
        heads = re.search(r"and (\d+) is not divisible by (\d+)", said)
        assert heads is not None
        assert int(heads[1]) % int(heads[2]) != 0
        same = "--d-in 6" in flags or "--d-in 1" in flags
        assert ("as x came in, but only because d_in = d_out" in said) is same
    else:
        one = re.search("--heads 1( |$)", flags) is not None
        assert ("The shape of wrapper_contexts and, at these sizes, its" in said) is one
        assert ("With one head both draw in the same order" in said) is one


@pytest.mark.parametrize("number", [16, 19, 21])
def test_where_python_tells_lines_only(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before 3.11 a frame has no columns: a chain's last call still has the name."""

    def line(self: Recorder, frame: FrameType) -> Place:
        return Place(
            frame.f_code.co_filename, frame.f_lineno, frame.f_lineno, None, None
        )

    def shapes(text: str) -> list[str]:
        return re.findall(r"(?:= \(\d[\d, ]*\), |\(\d[\d, ]*\)  ).*", text)

    expected = shapes(one_step(number).out)
    assert expected
    monkeypatch.setattr(Recorder, "_place", line)
    ran = one_step(number)
    assert (ran.code, ran.err) == (0, "")
    assert shapes(ran.out) == expected


def test_stacking_in_another_order_is_noticed() -> None:
    """The checks of step 22 fail when one role's rows are in another order."""
    x, sizes = torch.randn(1, 4, 4), {"T": 4, "d_in": 4, "H": 2, "D": 3, "seed": 123}
    with torch.no_grad():
        known = {**sizes, **step22.step(x, *sizes.values()), "x_batch": x}
        known.update(step22.wrong_one_seed(x, *sizes.values()))
        integrated = known["integrated"]
        integrated.W_value.weight.copy_(integrated.W_value.weight.roll(3, 0))
        known["stacked_contexts"] = integrated(x)
        told = {need: known[need] for need in needs(claims22.checks)}
        outcomes = list(claims22.checks(**told))
    failed = [claim for claim, outcome in outcomes if not outcome]
    assert any("stacked by rows" in claim for claim in failed)
    assert any("W_value" in claim for claim in failed)
