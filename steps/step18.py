"""Step 18: dropout, collect values

Article: "Collect values, concatenate, then mix"

Dropout thins the attention weights, in training; then each head mixes its own value vectors
by what is left.
"""

from steps.compare import close, equal
from steps.pytorch import nn, seeded, torch
from steps.walk.order import Table


def step(head_attention_weights, head_values, dropout, seed):
    mha_dropout = nn.Dropout(dropout)
    with seeded(seed):
        dropped_weights = mha_dropout(head_attention_weights)  # (B, H, T, T)
    head_contexts = dropped_weights @ head_values  # (B, H, T, D)
    return mha_dropout, dropped_weights, head_contexts


def wrong_scores(masked, mha_dropout, seed):
    """dropout on the scores, before the softmax: a dropped score is 0, which is not a weight
    of 0, and a blocked score that is dropped becomes 0 x -inf, which is nan"""
    with seeded(seed):
        dropped_scores = mha_dropout(masked)  # (B, H, T, T)
    wrong_weights = torch.softmax(dropped_scores, dim=-1)  # (B, H, T, T)
    return wrong_weights


def notes(dropped_weights, head_attention_weights, inputs, dropout, H):
    allowed = head_attention_weights > 0
    gone = int((allowed & (dropped_weights == 0)).sum())
    yield (
        f"p={dropout:g}: {gone} of {int(allowed.sum())} weights are dropped and the others are "
        f"multiplied by 1 / (1 - p) = {1 / (1 - dropout):.4g}."
    )
    rows = []
    for token, sums in zip(inputs, dropped_weights[0].sum(dim=-1).T.tolist(), strict=True):
        shown = sums if H <= 6 else [*sums[:5], sums[-1]]
        rows.append((token, *(f"{total:.4f}" for total in shown)))
    titles = [f"head {head + 1}" for head in (range(H) if H <= 6 else [*range(5), H - 1])]
    yield Table(("row sums", *titles), tuple(rows))
    yield (
        "Rows need not sum to 1 now: dropout keeps the expectation, not the sum. Step 12 says where "
        "the same seed drops other weights."
    )


def checks(head_attention_weights, dropped_weights, head_contexts, head_values, dropout, T):
    kept = dropped_weights != 0
    yield f"every survivor is multiplied by {1 / (1 - dropout):.4g}", close(
        dropped_weights[kept], head_attention_weights[kept] / (1 - dropout)
    )
    last = dropped_weights[0, 0, -1].tolist()
    mixture = sum(w * row for w, row in zip(last, head_values[0, 0], strict=True))
    yield "head 1's last context is the sum of weight x value, in a plain loop", close(
        head_contexts[0, 0, -1], mixture, atol=1e-4
    )
    yield "each head mixes its own values only", close(
        head_contexts[:, -1], dropped_weights[:, -1] @ head_values[:, -1], atol=1e-4
    )


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
