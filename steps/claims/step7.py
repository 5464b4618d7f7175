"""What is said of step 7, and checked."""

from steps.compare import close, true
from steps.pytorch import torch
from steps.words import products, row, token

SHOWN = ("similarity_weights", "similarity_contexts")
BRIEF = ("similarity_contexts",)


def look(similarity_weights, inputs, follow):
    weights = row(similarity_weights[follow].tolist(), follow)
    return (
        f'the weights of "{inputs[follow]}", {weights}: the shares of the inputs in '
        "its context."
    )


def notes(
    similarity, exponentials, similarity_weights, similarity_contexts,
    large_scores, naive_weights, x, inputs, follow,
):  # fmt: skip
    best = int(similarity[follow].argmax())
    whose = "itself" if best == follow else token(inputs, best)
    total = exponentials[follow].sum().item()
    yield (
        "similarity_weights",
        f"{token(inputs, follow)}: its largest score, "
        f"{similarity[follow, best].item():.4f} with {whose}, is subtracted first, "
        "which makes its exponential exp(0) = 1. All in the row sum to "
        f"{total:.4f}, so its weight is 1 / {total:.4f} = "
        f"{similarity_weights[follow, best].item():.4f}.",
    )
    first = similarity_contexts[follow, 0].item()
    terms = products(similarity_weights[follow].tolist(), x[:, 0].tolist())
    yield "similarity_contexts", f"{first:.4f} = {terms}"
    lost = naive_weights.isnan().any(dim=-1)
    at = follow if lost[follow] else int(lost.nonzero()[0])
    keep = int(naive_weights[at].isnan().nonzero()[0])
    stable = torch.softmax(large_scores[at], dim=-1).tolist()
    yield (
        "wrong_naive",
        f"{token(inputs, at)}: {row(naive_weights[at].tolist(), keep)}, and with "
        f"torch.softmax {row(stable, keep)}.",
    )


def checks(
    similarity, stable_weights, similarity_weights, similarity_contexts, x,
    large_scores, naive_weights, inputs, follow,
):  # fmt: skip
    sums = similarity_weights.sum(dim=-1)
    yield "every row of weights sums to 1", close(sums, torch.ones_like(sums))
    yield (
        "torch.softmax is the stable form: exponentials of (score - largest score), "
        "over their sum",
        close(stable_weights, similarity_weights, atol=1e-4),
    )
    small = similarity / similarity.abs().max()
    naive = torch.exp(small) / torch.exp(small).sum(dim=-1, keepdim=True)
    yield (
        "on small scores softmax without the subtraction gives the same weights",
        close(naive, torch.softmax(small, dim=-1)),
    )
    yield (
        "on large scores softmax without the subtraction gives nan, and torch.softmax "
        "does not",
        true(
            naive_weights.isnan().any()
            and torch.softmax(large_scores, dim=-1).isfinite().all(),
            "no nan in the naive weights, or one in torch.softmax's",
        ),
    )
    mixture = sum(w * row for w, row in zip(similarity_weights[follow], x, strict=True))
    yield (
        f'the context of "{inputs[follow]}" is the sum of weight x input over all '
        "tokens",
        close(similarity_contexts[follow], mixture, atol=1e-4),
    )
