"""What is said of step 18, and checked."""

from steps.compare import close
from steps.pytorch import torch
from steps.walk.order import Table


def notes(dropped_weights, head_attention_weights, inputs, dropout, H):
    allowed = head_attention_weights > 0
    gone = int((allowed & (dropped_weights == 0)).sum())
    yield (
        f"p={dropout:g}: {gone} of {int(allowed.sum())} weights are dropped and the "
        f"others are multiplied by 1 / (1 - p) = {1 / (1 - dropout):.4g}."
    )
    rows = []
    for token, sums in zip(
        inputs, dropped_weights[0].sum(dim=-1).T.tolist(), strict=True
    ):
        shown = sums if H <= 6 else [*sums[:5], sums[-1]]
        rows.append((token, *(f"{total:.4f}" for total in shown)))
    titles = [
        f"head {head + 1}" for head in (range(H) if H <= 6 else [*range(5), H - 1])
    ]
    yield Table(("row sums", *titles), tuple(rows))
    if dropout:
        yield (
            "Rows need not sum to 1 now: dropout keeps the expectation, not the sum. "
            "Step 12 says where the same seed drops other weights."
        )
    else:
        yield "With p=0 nothing is dropped, and the rows still sum to 1."


def checks(
    head_attention_weights, dropped_weights, head_contexts, head_values, H, dropout
):
    kept = dropped_weights != 0
    yield (
        f"every survivor is multiplied by {1 / (1 - dropout):.4g}",
        close(dropped_weights[kept], head_attention_weights[kept] / (1 - dropout)),
    )
    last = dropped_weights[0, 0, -1].tolist()
    mixture = sum(w * row for w, row in zip(last, head_values[0, 0], strict=True))
    yield (
        "head 1's last context is the sum of weight x value, in a plain loop",
        close(head_contexts[0, 0, -1], mixture, atol=1e-4),
    )
    own = [dropped_weights[:, h] @ head_values[:, h] for h in range(H)]
    yield (
        "each head mixes its own values only",
        close(head_contexts, torch.stack(own, dim=1), atol=1e-4),
    )
