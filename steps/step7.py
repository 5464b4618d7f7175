"""Step 7: softmax and context

Softmax turns a row of scores into weights: positive, and 1 in sum. A context vector is the
mixture of all inputs by those weights.
"""

from steps.compare import close, equal, true
from steps.pytorch import torch


def step(similarity, x):
    exponentials = torch.exp(similarity - similarity.amax(dim=-1, keepdim=True))  # (T, T)
    stable_weights = exponentials / exponentials.sum(dim=-1, keepdim=True)  # (T, T)
    similarity_weights = torch.softmax(similarity, dim=-1)  # (T, T)
    similarity_contexts = similarity_weights @ x  # (T, d_in)
    return stable_weights, similarity_weights, similarity_contexts


def wrong_naive(similarity):
    """the naive softmax, without subtracting the largest score: the same numbers while the
    scores are small, but the exponential of a large one overflows, and inf / inf is nan"""
    large_scores = similarity / similarity.abs().max() * 1000  # (T, T)
    naive_exponentials = torch.exp(large_scores)  # (T, T)
    naive_weights = naive_exponentials / naive_exponentials.sum(dim=-1, keepdim=True)  # (T, T)
    return large_scores, naive_weights


def checks(
    similarity, stable_weights, similarity_weights, similarity_contexts, x, large_scores,
    naive_weights, inputs, follow,
):
    sums = similarity_weights.sum(dim=-1)
    yield "every row of weights sums to 1", close(sums, torch.ones_like(sums))
    yield (
        "torch.softmax is the stable form: exponentials of (score - largest score), over their sum",
        close(stable_weights, similarity_weights),
    )
    small = similarity - similarity.amax()
    naive = torch.exp(small) / torch.exp(small).sum(dim=-1, keepdim=True)
    if naive.isfinite().all():
        yield "on small scores the naive form agrees", close(naive, similarity_weights)
    yield (
        "on large scores the naive form gives nan, and torch.softmax does not",
        true(
            naive_weights.isnan().any() and torch.softmax(large_scores, dim=-1).isfinite().all(),
            "no nan in the naive weights, or one in torch.softmax's",
        ),
    )
    mixture = sum(w * row for w, row in zip(similarity_weights[follow], x, strict=True))
    yield (
        f"the context of {inputs[follow]} is the sum of weight x input over all tokens",
        close(similarity_contexts[follow], mixture, atol=1e-4),
    )


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
