"""Step 7: softmax and context

Softmax turns a row of scores into weights: positive, and 1 in sum. A context vector is
the mixture of all inputs by those weights.
"""

from steps.pytorch import torch


def step(similarity, x):
    # (T, T)
    exponentials = torch.exp(similarity - similarity.amax(dim=-1, keepdim=True))
    stable_weights = exponentials / exponentials.sum(dim=-1, keepdim=True)  # (T, T)
    similarity_weights = torch.softmax(similarity, dim=-1)  # (T, T)
    similarity_contexts = similarity_weights @ x  # (T, d_in)
    return stable_weights, similarity_weights, similarity_contexts


def wrong_naive(similarity):
    """the naive softmax, without subtracting the largest score: the same numbers while
    the scores are small, but the exponential of a large one overflows, and inf / inf is
    nan"""
    large_scores = similarity / similarity.abs().max() * 1000  # (T, T)
    naive_exponentials = torch.exp(large_scores)  # (T, T)
    # (T, T)
    naive_weights = naive_exponentials / naive_exponentials.sum(dim=-1, keepdim=True)
    return large_scores, naive_weights


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
