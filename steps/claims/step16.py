"""What is said of step 16, and checked."""

from steps.compare import close
from steps.pytorch import nn, torch
from steps.words import count, products

INSTEAD = {
    "wrong_scaled": "scaled",
    "multiplied": "scaled",
    "heads_compared": "head_raw_scores",
}
BRIEF = ("scaled",)


def other(follow):
    """A token beside the followed one; itself, where there is no other."""
    return max(follow - 1, 0)


def look(head_raw_scores, inputs, follow, H, T):
    key = other(follow)
    score = head_raw_scores[0, 0, follow, key].item()
    return (
        f"{count(T, 'score')} per token and head, where it had a vector. In head 1 "
        f'"{inputs[follow]}" scores {score:.4f} with "{inputs[key]}": its query times '
        "that key, feature by feature, summed."
    )


def notes(
    head_queries, head_keys, head_raw_scores, packed_queries, packed_keys,
    inputs, follow, T, H, D,
):  # fmt: skip
    q, k = tuple(head_queries.shape), tuple(head_keys.mT.shape)
    key = other(follow)
    terms = products(head_queries[0, 0, follow].tolist(), head_keys[0, 0, key].tolist())
    scores = head_raw_scores[0, :, follow, key].tolist()
    yield (
        "head_raw_scores",
        f"{q} @ {k} -> {tuple(head_raw_scores.shape)}: a row for each query, a column "
        f'for each key. "{inputs[follow]}" with "{inputs[key]}", head 1: {terms} = '
        f"{scores[0]:.4f}",
    )
    if H > 1:
        whole = (packed_queries[0, follow] @ packed_keys[0, key]).item()
        each = [f"{score:.4f}" for score in (scores if H <= 3 else scores[:2])]
        terms = " + ".join(each) + (" + ..." if H > 3 else "")
        yield (
            "head_raw_scores",
            f"Why a head axis? Without one the heads' scores are added, {terms} = "
            f"{whole:.4f}: one pattern.",
        )


def checks(
    head_queries, head_keys, head_raw_scores, scaled, wrong_scaled, multiplied,
    packed_queries, packed_keys, H, D,
):  # fmt: skip
    some = min(head_raw_scores.shape[2], 8)
    queries, keys = head_queries[:2, :2, :some], head_keys[:2, :2, :some]
    first = "" if queries.shape == head_queries.shape else " (the first ones)"
    yield (
        "scores are one query times one key of the same head, in a plain loop" + first,
        close(head_raw_scores[:2, :2, :some, :some], loop(queries, keys), atol=1e-4),
    )
    eye = torch.eye(head_keys.shape[2]).expand(*head_keys.shape[:3], -1)
    fused = nn.functional.scaled_dot_product_attention(head_queries, head_keys, eye)
    yield (
        f"scaled by the root of {D}, one head's key width, the weights are those of "
        "the fused form",
        close(torch.softmax(scaled, dim=-1), fused, atol=1e-4),
    )
    yield (
        f"the root of {H * D}, all heads' width, makes every score {H**0.5:.4g} times "
        "too small"
        if H > 1
        else f"the root of {D}, all heads' width, is that of the one head",
        close(wrong_scaled * H**0.5, scaled, atol=1e-4),
    )
    yield (
        f"dividing by {D}**-0.5 makes every score {D} times too large"
        if D > 1
        else "with one number per head dividing by D**-0.5 changes no score",
        close(multiplied, scaled * D, atol=1e-3),
    )
    yield (
        "without a head axis the scores of all heads are added up",
        close(packed_queries @ packed_keys.mT, head_raw_scores.sum(dim=1), atol=1e-4),
    )
    columns = head_queries.mT, head_keys.mT  # (B, H, D, T): a token is a column
    yield (
        "with tokens as columns, as some texts have them, k.T @ q is the same, turned",
        close((columns[1].mT @ columns[0]).mT, head_raw_scores, atol=1e-4),
    )


def loop(queries, keys):
    """Every query of a head times every key of it, one product at a time."""
    return torch.tensor(
        [
            [
                [
                    [sum(a * b for a, b in zip(q, k, strict=True)) for k in head_keys]
                    for q in head_queries
                ]
                for head_queries, head_keys in zip(*sentence, strict=True)
            ]
            for sentence in zip(queries.tolist(), keys.tolist(), strict=True)
        ]
    )
