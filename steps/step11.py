"""Step 11: causal mask, the short way

Put minus infinity where the scores look ahead, before the softmax: its exponential is
0, and the rows come out normalised by themselves.

What is said of it, and checked: steps/claims/step11.py
"""

from steps.pytorch import torch


def step(attn_scores, T, D):
    mask = torch.triu(torch.ones(T, T), diagonal=1)  # (T, T)
    masked_scores = attn_scores.masked_fill(mask.bool(), -torch.inf)  # (T, T)
    causal_weights = torch.softmax(masked_scores / D**0.5, dim=-1)  # (T, T)
    return locals()


def wrong_dropped(attn_scores, mask, D):
    """masked_fill, its result thrown away

    masked_fill returns a new tensor; only masked_fill_, with the underscore, changes
    the old one.
    """
    attn_scores.masked_fill(mask.bool(), -torch.inf)
    unmasked_weights = torch.softmax(attn_scores / D**0.5, dim=-1)  # (T, T)
    return locals()


def wrong_zero(attn_scores, mask, D):
    """the future scores times 0 instead of -inf

    A score of 0 is a score like any other, with the exponential 1; that of -inf is 0.
    """
    zeroed_scores = attn_scores * (1 - mask)  # (T, T)
    zero_weights = torch.softmax(zeroed_scores / D**0.5, dim=-1)  # (T, T)
    return locals()


def wrong_diagonal(attn_scores, T, D):
    """the mask from the diagonal on, so that no token sees even itself

    The first row has nothing left to see, and softmax of -inf alone is nan.
    """
    strict_mask = torch.triu(torch.ones(T, T), diagonal=0)  # (T, T)
    strict_scores = attn_scores.masked_fill(strict_mask.bool(), -torch.inf)  # (T, T)
    strict_weights = torch.softmax(strict_scores / D**0.5, dim=-1)  # (T, T)
    return locals()


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
