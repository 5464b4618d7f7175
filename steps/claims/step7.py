"""What is said of step 7, and checked."""

from steps.compare import close, true
from steps.pytorch import torch


def checks(
    similarity,
    stable_weights,
    similarity_weights,
    similarity_contexts,
    x,
    large_scores,
    naive_weights,
    inputs,
    follow,
):
    sums = similarity_weights.sum(dim=-1)
    yield "every row of weights sums to 1", close(sums, torch.ones_like(sums))
    yield (
        "torch.softmax is the stable form: exponentials of (score - largest score), "
        "over their sum",
        close(stable_weights, similarity_weights),
    )
    small = similarity / similarity.abs().max()
    naive = torch.exp(small) / torch.exp(small).sum(dim=-1, keepdim=True)
    yield (
        "on small scores the naive form agrees with it",
        close(naive, torch.softmax(small, dim=-1)),
    )
    yield (
        "on large scores the naive form gives nan, and torch.softmax does not",
        true(
            naive_weights.isnan().any()
            and torch.softmax(large_scores, dim=-1).isfinite().all(),
            "no nan in the naive weights, or one in torch.softmax's",
        ),
    )
    mixture = sum(w * row for w, row in zip(similarity_weights[follow], x, strict=True))
    yield (
        f"the context of {inputs[follow]} is the sum of weight x input over all tokens",
        close(similarity_contexts[follow], mixture, atol=1e-4),
    )
