"""Step 16: score

Article: "Each head gets its own attention matrix"

Heads come first because matrix multiplication takes the last two axes as matrices and does
one product for every batch and head: each head compares every query with every key, alone.
"""

from steps.compare import close, equal, true
from steps.pytorch import torch


def step(head_queries, head_keys, D):
    head_raw_scores = head_queries @ head_keys.transpose(-2, -1)  # (B, H, T, T)
    scaled = head_raw_scores / D**0.5  # (B, H, T, T)
    return head_raw_scores, scaled


def wrong_width(head_raw_scores, H, D):
    """scaled by the width of all heads together, not by the key width of one"""
    wrong_scaled = head_raw_scores / (H * D) ** 0.5  # (B, H, T, T)
    return wrong_scaled


def wrong_sign(head_raw_scores, D):
    """divided by D**-0.5, which multiplies by the root; the shape cannot show it"""
    multiplied = head_raw_scores / D**-0.5  # (B, H, T, T)
    return multiplied


def wrong_axes(queries_by_token, keys_by_token):
    """no transpose before the product: the last two axes are heads and features, so each
    token's heads are compared with each other, and tokens never meet"""
    heads_compared = queries_by_token @ keys_by_token.transpose(-2, -1)  # (B, T, H, H)
    return heads_compared


def notes(head_queries, head_keys, scaled, wrong_scaled, multiplied, H, D):
    q, k = tuple(head_queries.shape), tuple(head_keys.transpose(-2, -1).shape)
    yield f"Shapes: {q} @ {k} -> {tuple(scaled.shape)}."
    if H > 1:
        yield (
            f"Dividing by the root of {H * D}, the width of all heads, makes every score "
            f"{H**0.5:.4g} times too small."
        )
    else:
        yield "With one head the width of all heads is the width of one; with more it is not."
    if D > 1:
        yield f"Dividing by {D}**-0.5 makes every score {D} times too large."


def checks(
    head_queries, head_keys, head_raw_scores, scaled, wrong_scaled, multiplied, inputs, follow, H, D
):
    sentence = range(min(head_raw_scores.shape[0], 2))
    some = range(min(head_raw_scores.shape[2], 8))
    loop = torch.tensor(
        [[[[sum(a * b for a, b in zip(head_queries[s, h, i].tolist(), head_keys[s, h, j].tolist(), strict=True))
            for j in some] for i in some] for h in range(min(H, 2))] for s in sentence]
    )
    yield "each score is one query times one key of the same head, in a plain loop", close(
        head_raw_scores[:2, :2, : len(some), : len(some)], loop, atol=1e-4
    )
    yield f"scaled is divided by the square root of {D}, the key width of one head", close(
        scaled * D**0.5, head_raw_scores, atol=1e-4
    )
    yield f"the full width is off by a factor of {H**0.5:.4g}", close(
        wrong_scaled * H**0.5, scaled, atol=1e-4
    )
    yield f"D**-0.5 is off by a factor of {D}", close(multiplied / D, scaled, atol=1e-4)


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
