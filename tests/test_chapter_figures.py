"""The chapter's printed numbers, to four decimals, from this project's own code.

`data/ch03_figures.json` holds what the chapter's notebooks print for a seed, a
configuration and an input, and a few figures of this project's own ("own.").
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from steps import attention, step6, step7, step8, step10, step11, step12, step15, tokens
from steps.attention import (
    CausalAttention,
    MultiHeadAttention,
    MultiHeadAttentionWrapper,
    SelfAttention_v1,
    SelfAttention_v2,
)
from steps.pytorch import nn, torch
from steps.walk.recorder import Recorder

DATA = json.loads((Path(__file__).parent / "data" / "ch03_figures.json").read_text())
FIGURES = {figure["name"]: figure for figure in DATA["figures"]}
X = torch.tensor(DATA["inputs"]["x"])
BATCH = torch.stack((X, X))


@pytest.fixture(autouse=True)
def own_random_state() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        yield


def made(kind: type[nn.Module], seed: int, *sizes: Any) -> Any:
    """As a reader of the chapter makes one."""
    torch.manual_seed(seed)
    return kind(*sizes)


def one_of_two(out: torch.Tensor) -> torch.Tensor:
    """The result for one of two equal sentences; both must be equal."""
    assert torch.equal(out[0], out[1])
    return out[0]


def simple() -> dict[str, Any]:
    made = step6.step(X[None], 1)
    return {**made, **step7.step(made["similarity"], X)}


def trainable() -> dict[str, Any]:
    return step8.step(X, 1, 3, 2, 123)


def causal() -> dict[str, Any]:
    sa_v2 = made(SelfAttention_v2, 789, 3, 2)
    weights = sa_v2.W_query.weight.T, sa_v2.W_key.weight.T
    long = step10.step(X, *weights, 6, 2)
    return {**long, **step11.step(long["attn_scores"], 6, 2)}


def causal_dropout() -> torch.Tensor:
    """The class's own weights after dropout, seen by a hook."""
    layers = made(SelfAttention_v2, 789, 3, 2).state_dict()
    causal_attention = CausalAttention(3, 2, 6, 0.5)
    causal_attention.load_state_dict(layers, strict=False)
    seen = []
    causal_attention.dropout.register_forward_hook(lambda *call: seen.extend(call[1:]))
    torch.manual_seed(123)
    causal_attention(X[None])
    (before,), after = seen
    assert torch.allclose(before[0], causal()["causal_weights"])
    return after[0]


def batched_scores() -> torch.Tensor:
    """The class's raw scores when its projections leave the input as it is."""
    a = torch.tensor(DATA["inputs"]["a"])  # (1, 2 heads, 3 tokens, 4)
    mha = MultiHeadAttention(8, 8, 3, 0.0, 2)
    for layer in (mha.W_query, mha.W_key):
        layer.weight.copy_(torch.eye(8))
    with Recorder([attention.__file__]) as recorder:
        mha(a.transpose(1, 2).reshape(1, 3, 8))
    return next(e.tensor for e in recorder.entries if e.name == "attn_scores")


def arange() -> tuple[torch.Tensor, ...]:
    """The layers pass 0 to 23 on."""
    numbers = torch.arange(24).view(1, 4, 6)
    right = step15.step(numbers, *[nn.Identity()] * 3, 1, 4, 2, 3)
    wrong = step15.wrong_view(right["packed_queries"], 1, 4, 2, 3)
    return right["head_queries"], wrong["wrong_queries"]


def parameters() -> int:
    with torch.device("meta"):
        mha = MultiHeadAttention(768, 768, 1024, 0.0, 12)
    return sum(weight.numel() for weight in mha.parameters())


def heads(kind: type[nn.Module], d_out: int) -> torch.Tensor:
    return one_of_two(made(kind, 123, 3, d_out, 6, 0.0, 2)(BATCH))


def dropout(ones: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(123)
    return nn.Dropout(0.5)(ones)


COMPUTED: dict[str, Callable[[], Any]] = {
    "simple.attn_scores_2": lambda: simple()["one_similarity"],
    "simple.weights_2_sum_norm": lambda: (
        simple()["one_similarity"] / simple()["one_similarity"].sum()
    ),
    "simple.attn_weights_2": lambda: simple()["similarity_weights"][1],
    "simple.context_2": lambda: simple()["similarity_contexts"][1],
    "simple.attn_scores": lambda: simple()["similarity"],
    "simple.attn_weights": lambda: simple()["similarity_weights"],
    "simple.contexts": lambda: simple()["similarity_contexts"],
    "trainable.query_2": lambda: trainable()["one_query"],
    "trainable.attn_score_22": lambda: trainable()["one_scores"][1],
    "trainable.attn_scores_2": lambda: trainable()["one_scores"],
    "trainable.attn_weights_2": lambda: trainable()["one_weights"],
    "trainable.context_2": lambda: trainable()["one_context"],
    "SelfAttention_v1.seed123": lambda: made(SelfAttention_v1, 123, 3, 2)(X),
    "SelfAttention_v2.seed789": lambda: made(SelfAttention_v2, 789, 3, 2)(X),
    "SelfAttention_v2.seed123": lambda: made(SelfAttention_v2, 123, 3, 2)(X),
    "causal.attn_weights_unmasked": lambda: causal()["attn_weights"],
    "causal.masked_simple": lambda: causal()["masked_simple"],
    "causal.masked_simple_norm": lambda: causal()["masked_simple_norm"],
    "causal.masked_scores": lambda: causal()["masked_scores"],
    "causal.attn_weights": lambda: causal()["causal_weights"],
    "dropout.ones_p05_seed123": lambda: dropout(torch.ones(6, 6)),
    "dropout.attn_weights_p05_seed123": causal_dropout,
    "CausalAttention.seed123": lambda: one_of_two(
        made(CausalAttention, 123, 3, 2, 6, 0.0)(BATCH)
    ),
    "MultiHeadAttentionWrapper.seed123_h2": lambda: heads(MultiHeadAttentionWrapper, 2),
    "MultiHeadAttention.seed123_dout2_h2": lambda: heads(MultiHeadAttention, 2),
    "MultiHeadAttention.seed123_dout4_h2": lambda: heads(MultiHeadAttention, 4),
    "MultiHeadAttentionWrapper.seed123_h2_dout1_ctx6": lambda: heads(
        MultiHeadAttentionWrapper, 1
    ),
    "MultiHeadAttention.params_768_h12": parameters,
    "batched_matmul.a_aT": batched_scores,
    "ch02.embedding_6x3_seed123": lambda: made(nn.Embedding, 123, 6, 3).weight,
    "own.view_transpose_arange24": lambda: arange()[0],
    "own.view_only_wrong_arange24": lambda: arange()[1],
    "own.dropout_rowsums_uniform_causal4": lambda: step12.step(4, 123)["half_sums"],
    "own.gpt2_ids": lambda: tokens.encode("The river bank was muddy"),
}


def test_every_figure_is_computed() -> None:
    assert COMPUTED.keys() == FIGURES.keys()


@pytest.mark.parametrize("name", FIGURES)
def test_figure(name: str) -> None:
    got = torch.as_tensor(COMPUTED[name]()).double()
    expected = torch.tensor(numbers(FIGURES[name]["expected"])).double()
    assert got.shape == expected.shape
    # the fourth decimal as printed; -inf is equal to itself
    torch.testing.assert_close(got, expected, rtol=0, atol=5.1e-5)


def numbers(value: Any) -> Any:
    if isinstance(value, list):
        return [numbers(part) for part in value]
    return float(value) if isinstance(value, str) else value


def test_the_printed_answer_of_exercise_3_2_is_not_of_this_input() -> None:
    """Its last row is printed as -1.4744 -0.3433, which no seed can give.

    Without a bias a value is a weight row times a token, at most the sum of the token's
    sizes times the largest weight that is drawn, 1 / sqrt(d_in). A context mixes values
    and cannot be larger than all of them. What the class gives is tested above.
    """
    assert (
        FIGURES["MultiHeadAttentionWrapper.seed123_h2_dout1_ctx6"]["printed"] is False
    )
    largest = X.abs().sum(dim=1).max() / 3**0.5
    assert largest < 1.4744
    out = heads(MultiHeadAttentionWrapper, 1)
    assert out.abs().max() <= largest
