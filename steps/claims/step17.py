"""What is said of step 17, and checked."""

from steps.compare import close, differ, equal
from steps.layout import Table
from steps.pytorch import nn, seeded, torch
from steps.words import listed, span

INSTEAD = {"column_weights": "head_attention_weights"}
BRIEF = ("causal_mask", "masked")


def look(causal_mask, inputs, follow, H):
    blocked = causal_mask[follow].tolist()
    seen = [f'"{token}"' for token in inputs[:follow]]
    hidden = [f'"{token}"' for token in inputs[follow + 1 : len(blocked)]]
    heads = (
        ("the head lets", "both heads let")[H - 1] if H < 3 else f"all {H} heads let"
    )
    return f'{heads} "{inputs[follow]}" use {listed([*seen, "itself"])}' + (
        f", while blocking {listed(hidden)}." if hidden else "; nothing comes after it."
    )


def notes(causal_mask, scaled, head_queries, head_keys, masked, seed, H, T, D):
    yield (
        "causal_mask",
        f"({T}, {T}) broadcasts to {tuple(masked.shape)}. True blocks here and for "
        "nn.MultiheadAttention.",
    )
    if T > 1:
        rows = tuple(
            (name, str(tuple(mask.shape)), outcome(scaled, mask))
            for name, mask in padding(T).items()
        )
        header = ("mask", "shape", "two sentences, the second padded")
        yield "masked", Table(header, rows)
        _, query = (
            (weights - biased).abs().max().item()
            for weights, biased in biases(head_queries, head_keys, masked, seed, D)
        )
        yield (
            "head_attention_weights",
            "Why no biases? One of the keys adds the same to a whole row of scores, "
            f"and no weight changes; one of the queries moves a weight by {query:.4f}; "
            "one of the values is added to every context.",
        )


def padding(T):
    """Masks of the padded keys of two sentences, in the shapes that people try."""
    blocked = torch.zeros(2, T, dtype=torch.bool)
    blocked[1, -1] = True
    return {
        "blocked": blocked,
        "blocked[:, None]": blocked[:, None],
        "blocked[:, None, None]": blocked[:, None, None],
    }


def outcome(scaled, mask):
    """What a padding mask does to the scores of two sentences, said and measured."""
    scores = torch.cat((scaled[:1], scaled[:1]))
    try:
        hit = scores.masked_fill(mask, -torch.inf) == -torch.inf
    except RuntimeError:
        return "raises an error"
    right = torch.zeros_like(hit)
    right[1, :, :, -1] = True
    if torch.equal(hit, right):
        return "blocks the padded key, in every head"
    heads = [h for h in range(hit.shape[1]) if hit[:, h].any()]
    both = "both sentences" if hit[0].any() else "sentence 2"
    where = span("head", heads[0] + 1, len(heads)) if len(heads) < len(hit[0]) else ""
    return f"blocks {where or 'every head'} of {both}: wrong"


def biases(head_queries, head_keys, masked, seed, D):
    """(weights without, weights with) a bias: of the keys, then of the queries."""
    with seeded(seed):
        bias = torch.randn(D)
    hidden = masked == -torch.inf

    def weights(q, k):
        scores = (q @ k.mT / D**0.5).masked_fill(hidden, -torch.inf)
        return torch.softmax(scores, dim=-1)

    unbiased = weights(head_queries, head_keys)
    yield unbiased, weights(head_queries, head_keys + bias)
    yield unbiased, weights(head_queries + bias, head_keys)


def checks(
    causal_mask, scaled, masked, head_attention_weights, column_weights,
    head_queries, head_keys, head_values, seed, H, T, D,
):  # fmt: skip
    sums = head_attention_weights.sum(dim=-1)
    ahead = head_attention_weights[..., causal_mask]
    future = {0: "", 1: ", and the one future weight is exactly 0"}
    yield (
        "every row of every head sums to 1"
        + future.get(
            ahead.numel(), f", and all {ahead.numel()} future weights are exactly 0"
        ),
        close(sums, torch.ones_like(sums))
        and equal(ahead, torch.zeros_like(ahead))
        and equal(masked == -torch.inf, causal_mask.expand_as(masked)),
    )
    columns = column_weights.sum(dim=-2)
    yield (
        "softmax over dim=-2 makes the columns sum to 1 instead",
        close(columns, torch.ones_like(columns)),
    )
    fused = nn.functional.scaled_dot_product_attention(
        head_queries, head_keys, head_values, attn_mask=~causal_mask
    )
    yield (
        "scaled_dot_product_attention, where True may attend, agrees at ~causal_mask",
        close(head_attention_weights @ head_values, fused, atol=1e-4),
    )
    (unbiased, keys), _ = biases(head_queries, head_keys, masked, seed, D)
    bias, weights = head_values[0, 0, 0], head_attention_weights
    added = weights @ (head_values + bias)
    yield (
        "a bias of the keys changes no weight, one of the values is added to contexts",
        close(keys, unbiased, atol=1e-4)
        and close(added, weights @ head_values + bias, atol=1e-4),
    )
    if T > 1:
        *_, last = padding(T).values()
        yield (
            "a padding mask (B, 1, 1, T) blocks the padded key of its own sentence",
            equal(
                outcome(scaled, last).partition(",")[0],
                "blocks the padded key",
            ),
        )
    if H > 1 and T > 1:
        yield (
            "heads 1 and 2 weigh the same tokens differently",
            differ(head_attention_weights[:, 0], head_attention_weights[:, 1]),
        )
