"""Step 7: softmax and context

Softmax turns a row of scores into weights: positive, and 1 in sum. A context vector is
the mixture of all inputs by those weights.

What is said of it, and checked: steps/claims/step7.py
"""

from steps.pytorch import torch


def step(similarity, x):
    # (T, T)
    exponentials = torch.exp(similarity - similarity.amax(dim=-1, keepdim=True))
    stable_weights = exponentials / exponentials.sum(dim=-1, keepdim=True)  # (T, T)
    similarity_weights = torch.softmax(similarity, dim=-1)  # (T, T)
    similarity_contexts = similarity_weights @ x  # (T, d_in)
    return locals()


def wrong_naive(similarity):
    """softmax without subtracting the largest score first

    Small scores hide it. Stretched up to 1000, exp gives inf, and inf / inf is nan.
    """
    large_scores = similarity / similarity.abs().max() * 1000  # (T, T)
    powers = torch.exp(large_scores)  # (T, T)
    naive_weights = powers / powers.sum(dim=-1, keepdim=True)  # (T, T)
    return locals()


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
