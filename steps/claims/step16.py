"""What is said of step 16, and checked."""

from steps.compare import close
from steps.pytorch import nn, torch
from steps.words import products


def notes(head_queries, head_keys, head_raw_scores, scaled, inputs, follow, H, D):
    q, k = tuple(head_queries.shape), tuple(head_keys.transpose(-2, -1).shape)
    yield f"Shapes: {q} @ {k} -> {tuple(scaled.shape)}."
    key = max(follow - 1, 0)
    terms = products(head_queries[0, 0, follow].tolist(), head_keys[0, 0, key].tolist())
    score = head_raw_scores[0, 0, follow, key].item()
    yield (
        f"head_raw_scores[0, 0, {follow}, {key}], the query of {inputs[follow]} with "
        f"the key of {inputs[key]} in head 1: {terms} = {score:.4f}"
    )
    if H > 1:
        yield (
            f"Dividing by the root of {H * D}, the width of all heads, makes every "
            f"score {H**0.5:.4g} times too small."
        )
    else:
        yield "With one head, the width of all is that of one; with more it is not."
    if D > 1:
        yield f"Dividing by {D}**-0.5 makes every score {D} times too large."


def checks(
    head_queries, head_keys, head_raw_scores, scaled, wrong_scaled, multiplied, H, D
):
    sentence = range(min(head_raw_scores.shape[0], 2))
    some = range(min(head_raw_scores.shape[2], 8))
    loop = torch.tensor(
        [
            [
                [
                    [
                        sum(
                            a * b
                            for a, b in zip(
                                head_queries[s, h, i].tolist(),
                                head_keys[s, h, j].tolist(),
                                strict=True,
                            )
                        )
                        for j in some
                    ]
                    for i in some
                ]
                for h in range(min(H, 2))
            ]
            for s in sentence
        ]
    )
    yield (
        "scores are one query times one key of the same head, in a plain loop"
        + ("" if H <= 2 and len(some) == head_keys.shape[2] else " (the first ones)"),
        close(head_raw_scores[:2, :2, : len(some), : len(some)], loop, atol=1e-4),
    )
    eye = torch.eye(head_keys.shape[2]).expand(*head_keys.shape[:3], -1)
    fused = nn.functional.scaled_dot_product_attention(head_queries, head_keys, eye)
    yield (
        f"scaled by the square root of {D}, the key width of one head, the weights are "
        "those of scaled_dot_product_attention",
        close(torch.softmax(scaled, dim=-1), fused, atol=1e-4),
    )
    if H > 1:
        yield (
            f"by the full width the scores are off by a factor of {H**0.5:.4g}",
            close(wrong_scaled, scaled / H**0.5, atol=1e-4),
        )
    if D > 1:
        yield (
            f"by D**-0.5 they are off by a factor of {D}",
            close(multiplied, scaled * D, atol=1e-3),
        )
