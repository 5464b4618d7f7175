"""The article's claims, and the values of steps 6 to 19 against plain Python loops.

The loops use lists and `math`, and nothing of the project but the recorded tensors.
"""

import math
import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from program import Ran
from torch import nn

from steps import step15, step16, step17, step18, step19
from steps.attention import SelfAttention_v1
from steps.walk import command
from steps.walk.order import Walk

Vector = Sequence[float]
Matrix = Sequence[Vector]

WORDS = ["The", "river", "bank", "was", "muddy", "a", "fish", "swam", "cold", "water"]


def recorded(numbers: list[int], *flags: str) -> dict[str, Any]:
    """The named tensors of these steps as nested lists; the last one of each name."""
    given, _ = command.settings(command.parser("walk", "").parse_args(flags))
    blocks = list(Walk(given).blocks(numbers))
    assert [c for block in blocks for c in block.checks if not c.holds] == []
    return {
        entry.name: entry.numbers().tolist()
        for block in blocks
        for entry in block.entries
        if entry.name
    }


def dot(a: Vector, b: Vector) -> float:
    return sum(p * q for p, q in zip(a, b, strict=True))


def through(rows: Matrix, weight: Matrix) -> list[list[float]]:
    """Each row through a layer whose weight has a row for every output."""
    return [[dot(row, out) for out in weight] for row in rows]


def softmax(scores: Vector) -> list[float]:
    powers = [math.exp(score - max(scores)) for score in scores]
    return [power / sum(powers) for power in powers]


def causal(scores: Matrix) -> list[list[float]]:
    """Softmax of each row over the tokens up to its own, and 0 after them."""
    return [
        softmax(row[: i + 1]) + [0.0] * (len(row) - i - 1)
        for i, row in enumerate(scores)
    ]


def mixed(weights: Matrix, values: Matrix) -> list[list[float]]:
    """Each row of weights as a mixture of the value vectors."""
    return [
        [dot(row, column) for column in zip(*values, strict=True)] for row in weights
    ]


def turned(matrix: Matrix) -> list[list[float]]:
    return [list(column) for column in zip(*matrix, strict=True)]


def agree(got: Any, expected: Any) -> None:
    """Nested lists of one shape with the same numbers, but for rounding."""
    if not isinstance(expected, list):
        assert got == pytest.approx(expected, abs=1e-4, rel=1e-4)
        return
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        agree(a, b)


def separate_heads(
    x: Matrix, weights: dict[str, Matrix], H: int, D: int
) -> list[dict[str, list[list[float]]]]:
    """Every head alone, from its own weight rows: what it makes of one sentence."""
    heads = []
    for h in range(H):
        rows = slice(h * D, (h + 1) * D)
        q, k, v = (
            through(x, weights[role][rows]) for role in ("query", "key", "value")
        )
        raw = [[dot(a, b) for b in k] for a in q]
        scaled = [[score / math.sqrt(D) for score in row] for row in raw]
        attention = causal(scaled)
        heads.append({"q": q, "k": k, "v": v, "raw": raw, "scaled": scaled})
        heads[-1] |= {"weights": attention, "contexts": mixed(attention, v)}
    return heads


sizes = st.fixed_dictionaries(
    {
        "--text": st.lists(st.sampled_from(WORDS), min_size=2, max_size=7).map(
            " ".join
        ),
        "--d-in": st.integers(1, 7),
        "--heads": st.integers(1, 5),
        "--head-dim": st.integers(1, 5),
        "--seed": st.integers(0, 2**63 - 1),
    }
)


def flags_of(chosen: dict[str, Any]) -> list[str]:
    return [f"{flag}={value}" for flag, value in chosen.items()]


@settings(max_examples=25, deadline=None)
@given(chosen=sizes, dropout=st.sampled_from(["0", "0.1", "0.5", "0.9"]))
def test_packed_heads_are_separate_heads(chosen: dict[str, Any], dropout: str) -> None:
    flags = [*flags_of(chosen), f"--dropout={dropout}"]
    got = recorded([5, 14, 15, 16, 17, 18, 19], *flags)
    H, D, T = chosen["--heads"], chosen["--head-dim"], len(got["x_batch"][0])
    weights = {r: got[f"mha_W_{r}.weight"] for r in ("query", "key", "value")}
    heads = separate_heads(got["x_batch"][0], weights, H, D)

    for role, letter, plural in (
        ("query", "q", "queries"),
        ("key", "k", "keys"),
        ("value", "v", "values"),
    ):
        by_head = [head[letter] for head in heads]
        by_token = [[by_head[h][t] for h in range(H)] for t in range(T)]
        packed = [[number for head in token for number in head] for token in by_token]
        agree(got[f"packed_{plural}"], [packed])
        agree(got[f"{plural}_by_token"], [by_token])
        agree(got[f"head_{plural}"], [by_head])
        assert len(weights[role]) == H * D

    agree(got["head_raw_scores"], [[head["raw"] for head in heads]])
    agree(got["scaled"], [[head["scaled"] for head in heads]])
    agree(got["causal_mask"], [[j > i for j in range(T)] for i in range(T)])
    for h, head in enumerate(heads):
        for i in range(T):
            row = [s if j <= i else -math.inf for j, s in enumerate(head["scaled"][i])]
            assert got["masked"][0][h][i] == pytest.approx(row, abs=1e-4, rel=1e-4)
    agree(got["head_attention_weights"], [[head["weights"] for head in heads]])
    for i in range(T):
        for head_weights in got["head_attention_weights"][0]:
            assert head_weights[i][i + 1 :] == [0.0] * (T - i - 1)

    factor = 1 / (1 - float(dropout))
    for h, head in enumerate(heads):
        survivors = chain.from_iterable(got["dropped_weights"][0][h])
        weights_before = chain.from_iterable(head["weights"])
        for kept, weight in zip(survivors, weights_before, strict=True):
            assert kept == 0 or kept == pytest.approx(weight * factor, rel=1e-3)
    contexts = [mixed(got["dropped_weights"][0][h], heads[h]["v"]) for h in range(H)]
    agree(got["head_contexts"], [contexts])
    joined = [[n for h in range(H) for n in contexts[h][t]] for t in range(T)]
    agree(got["joined_contexts"], [joined])
    agree(got["mha_context_vectors"], [through(joined, got["out_proj.weight"])])


@settings(max_examples=15, deadline=None)
@given(chosen=sizes)
def test_one_head_step_by_step(chosen: dict[str, Any]) -> None:
    got = recorded([5, 6, 7, 8, 9, 10, 11, 13], *flags_of(chosen))
    x, D = got["x_batch"][0], chosen["--head-dim"]
    T = len(x)
    similarity = [[dot(a, b) for b in x] for a in x]
    agree(got["similarity"], similarity)
    weights = [softmax(row) for row in similarity]
    agree(got["similarity_weights"], weights)
    agree(got["similarity_contexts"], mixed(weights, x))

    roles = {role: turned(got[f"sa_v1.W_{role}"]) for role in ("query", "key", "value")}
    q, k, v = (through(x, weight) for weight in roles.values())
    scores = [[dot(a, b) / math.sqrt(D) for b in k] for a in q]
    contexts = mixed([softmax(row) for row in scores], v)
    agree(got["contexts_v1"], contexts)
    agree(got["contexts_v2"], contexts)
    assert any(got["one_query"] == pytest.approx(row, abs=1e-4) for row in q)
    assert any(got["one_context"] == pytest.approx(row, abs=1e-4) for row in contexts)

    (head,) = separate_heads(
        x,
        {r: got[f"causal_attention.W_{r}.weight"] for r in ("query", "key", "value")},
        1,
        D,
    )
    agree(got["causal_contexts"], [head["contexts"]] * 2)
    unscaled = got["attn_scores"]
    agree(
        got["masked_simple_norm"],
        causal([[s / math.sqrt(D) for s in r] for r in unscaled]),
    )
    agree(got["causal_weights"], got["masked_simple_norm"])
    agree(got["mask_simple"], [[float(j <= i) for j in range(T)] for i in range(T)])


def test_steps_with_every_axis_of_another_size() -> None:
    """B 2, T 5, H 3, D 4, d_in 7: the steps' functions called directly, no dropout."""
    B, T, H, D, d_in = 2, 5, 3, 4, 7
    torch.manual_seed(0)
    with torch.no_grad():
        x = torch.randn(B, T, d_in)
        layers = [nn.Linear(d_in, H * D, bias=False) for _ in range(3)]
        projected = step15.step(x, *layers, B, T, H, D)
        roles = ("queries", "keys", "values")
        head_queries, head_keys, head_values = (projected[f"head_{r}"] for r in roles)
        assert (
            head_queries.shape == head_keys.shape == head_values.shape == (B, H, T, D)
        )
        scaled = step16.step(head_queries, head_keys, D)["scaled"]
        weights = step17.step(scaled, T)["head_attention_weights"]
        assert weights.shape == (B, H, T, T)
        contexts = step18.step(weights, head_values, 0.0, 1)["head_contexts"]
        last = step19.step(contexts, *layers, B, T, H, D, 1)
        out_proj, vectors = last["out_proj"], last["mha_context_vectors"]
        assert vectors.shape == (B, T, H * D)
    roles = zip(("query", "key", "value"), layers, strict=True)
    rows = {role: layer.weight.tolist() for role, layer in roles}
    for sentence in range(B):
        heads = separate_heads(x[sentence].tolist(), rows, H, D)
        agree(contexts[sentence].tolist(), [head["contexts"] for head in heads])
        joined = [[n for head in heads for n in head["contexts"][t]] for t in range(T)]
        expected = through(joined, out_proj.weight.tolist())
        agree(vectors[sentence].tolist(), expected)


@pytest.mark.parametrize("seed", ["2", "5", "9"])
def test_what_is_said_holds_where_dropout_leaves_nothing(seed: str) -> None:
    recorded([12, 18, 19], "--text", "The river bank", "--seed", seed)
    recorded([12, 18, 19], "--dropout", "0.99", "--seed", seed)


def test_what_is_said_holds_where_numbers_are_large() -> None:
    flags = ("--text", "The river", "--d-in", "4096", "--head-dim", "64")
    for seed in ("5", "6"):
        recorded([6, 7, 8, 9], *flags, "--seed", seed)


def test_dropout_factors() -> None:
    """Uniform causal 4x4 weights, p=0.5, seed 123: the rows' sums are 2, 1, 2/3, 2."""
    got = recorded([12])
    agree(got["half_sums"], [2.0, 1.0, 2 / 3, 2.0])
    uniform = [[1 / (i + 1) if j <= i else 0.0 for j in range(4)] for i in range(4)]
    agree(got["uniform_weights"], uniform)
    for row, weights in zip(got["half_dropped"], uniform, strict=True):
        for kept, weight in zip(row, weights, strict=True):
            assert kept == 0 or kept == pytest.approx(2 * weight)
    ones = set(chain.from_iterable(got["tenth_dropped"]))
    assert {round(one, 4) for one in ones} <= {0.0, 1.1111}  # 1 / (1 - p), not 1 / p


# Every shape and number of the article, in the block of the step that it links to.
IN_THE_BLOCKS = {
    1: ["464", "7850", "3331", "373", "39085"],
    2: ['index 2, where "bank" is the input. Its target is "was"'],
    3: ['after "The river bank" comes "was"', "(4,) -> (1, 4)", "at stride 2"],
    4: ["weight (50257, 4)", "its id, 3331", "(1, 4) -> (1, 4, 4)"],
    5: ["x_batch = token_embeddings + position_embeddings", "(1, 4, 4)"],
    8: ["W_query", "W_key", "W_value", "divided by the square root of 3"],
    9: ["2 times the identity as W_query"],
    10: ["divided by its sum"],
    11: ["-inf in 6 of 16 places", "masked_fill_, with the underscore"],
    12: ["before torch 2.7", "2, 1, 0.6667, 2 after.", "1 / (1 - p), 1.1111 here"],
    13: [
        "the mask, (8, 8)",
        "the buffer mask",
        "12 tokens, more than context_length = 8",
    ],
    14: ["nn.Linear(4, 6, bias=False)", "(6, 4)", "mha_W_query", "mha_W_value"],
    15: [
        "packed_queries = mha_W_query(x_batch)",
        "likewise packed_keys, packed_values",
        "packed_queries.view(1, 4, 2, 3)",
        "queries_by_token.transpose(1, 2)",
        "1 sentence, 4 tokens, 2 heads per token, 3 query numbers per head",
        "(batch_size, num_tokens, NUM_HEADS, HEAD_DIM)",
        "Axes 1 and 2 (counted from 0) change places, (1, 4, 2, 3) -> (1, 2, 4, 3)",
        "1 sentence, 4 tokens, 6 query numbers per token, the results of both heads",
        "Keys and values receive the same transformation.",
        '"bank"\'s row of 6 becomes 2 groups of 3',
        "each token contains every head",
        "each head contains every token",
        "(1, 4, 6)",
        "(1, 4, 2, 3)",
        "(1, 2, 4, 3)",
        "24",
        "queries_by_token[0, 2, 0]",
        "head_queries[0, 0, 2]",
        "packed_queries.view(1, 2, 4, 3)",
    ],
    16: [
        "head_raw_scores = head_queries @ head_keys.transpose(-2, -1)",
        "(1, 2, 4, 3) @ (1, 2, 3, 4) -> (1, 2, 4, 4)",
        "the root of 3, one head's key width",
        "0.6492 + 0.6437 = 1.2929: one pattern",
    ],
    17: [
        "masked = scaled.masked_fill(causal_mask, -torch.inf)",
        "head_attention_weights = torch.softmax(masked, dim=-1)",
        "(4, 4)",
        'both heads let "bank" use "The", "river" and itself, while blocking "was".',
        "blocked[:, None] (2, 1, 4) blocks head 2 of both sentences: wrong",
    ],
    18: [
        "head_contexts = mha_dropout(head_attention_weights) @ head_values",
        "(1, 2, 4, 3)",
        "multiplied by 1 / (1 - 0.5) = 2",
        "need not sum to 1",
    ],
    19: [
        "head_contexts.transpose(1, 2).contiguous().view(1, 4, 6)",
        "nn.Linear(H * D, d_out, bias=False) weight (6, 6)",
        "mha_context_vectors = out_proj(joined_contexts)",
        "(1, 4, 6)",
        "residual connection",
        "6 features out, 4 in",
        "here deliberately they are not",
        "out_proj makes no path to a future token",
        "not vocabulary probabilities",
    ],
}


@pytest.mark.parametrize("number", IN_THE_BLOCKS)
def test_the_articles_names_and_shapes_are_in_the_output(
    number: int, whole_run: Ran
) -> None:
    after = whole_run.out.split(f"\nStep {number}: ")[1]
    block = " ".join(re.split(r"\nStep \d+: ", after)[0].split())
    for part in IN_THE_BLOCKS[number]:
        assert part in block


def test_the_articles_claims(walk_document: dict) -> None:
    tensors: dict[str, Any] = {}
    for step in walk_document["steps"][:20]:
        turns = [turn["tensors"] for turn in step["wrong_turns"]]
        for tensor in chain(step["tensors"], *turns):
            tensors[tensor["name"]] = tensor

    def shape(name: str) -> tuple[int, ...]:
        return tuple(tensors[name]["shape"])

    def values(name: str) -> Any:
        return tensors[name]["values"]

    for role in ("query", "key", "value"):
        assert shape(f"mha_W_{role}.weight") == (6, 4)
    # view: no query is recalculated, 24 elements, one storage
    by_token, by_head = tensors["queries_by_token"], tensors["head_queries"]
    assert math.prod(shape("packed_queries")) == math.prod(by_token["shape"]) == 24
    for tensor in (by_token, by_head):
        assert tensor["origin"] == "rearranged"
        assert tensor["shares_storage_with"] == "packed_queries"
    assert tensors["packed_queries"]["origin"] == "computed"
    # bank's one row of six becomes two groups of three
    bank = values("packed_queries")[0][2]
    assert values("queries_by_token")[0][2] == [bank[:3], bank[3:]]
    assert values("queries_by_token")[0][2][0] == values("head_queries")[0][0][2]
    # the same shape by view alone puts other vectors in the rows
    assert shape("wrong_queries") == shape("head_queries")
    assert values("wrong_queries")[0][0][0] == values("head_queries")[0][0][0]
    assert values("wrong_queries")[0][0][1] == values("head_queries")[0][1][0]
    # both heads let bank use The, river and itself
    for head in values("head_attention_weights")[0]:
        assert all(weight > 0 for weight in head[2][:3])
        assert head[2][3] == 0
        assert [sum(row) for row in head] == pytest.approx([1.0] * 4)
    assert values("masked")[0][0][2][3] == "-inf"
    assert shape("joined_contexts") == shape("mha_context_vectors") == (1, 4, 6)
    assert shape("out_proj.weight") == (6, 6)


def test_a_score_times_0_gives_weight_to_the_future(walk_document: dict) -> None:
    """Why -inf: "The" gives the future more of its weight than it keeps."""
    made = {tensor["name"]: tensor for tensor in walk_document["steps"][9]["tensors"]}
    scores = made["attn_scores"]["values"]
    (turn,) = [
        turn
        for turn in walk_document["steps"][10]["wrong_turns"]
        if "times 0" in turn["says"]
    ]
    wrong = {tensor["name"]: tensor["values"] for tensor in turn["tensors"]}
    zeroed = [
        [score / math.sqrt(3) if j <= i else 0.0 for j, score in enumerate(row)]
        for i, row in enumerate(scores)
    ]
    agree(wrong["zero_weights"], [softmax(row) for row in zeroed])
    assert sum(wrong["zero_weights"][0][1:]) > 0.5


def test_weights_that_make_the_layer_steps_6_and_7() -> None:
    """The identity, times the root that the scores are divided by."""
    got = recorded([5, 6, 7], "--d-in", "5")
    layer = SelfAttention_v1(5, 5)
    with torch.no_grad():
        layer.W_query.copy_(torch.eye(5) * math.sqrt(5))
        layer.W_key.copy_(torch.eye(5))
        layer.W_value.copy_(torch.eye(5))
        contexts = layer(torch.tensor(got["x_batch"][0]))
    agree(contexts.tolist(), got["similarity_contexts"])
