"""Step 11: causal mask, the short way

Put minus infinity where the scores look ahead, before the softmax: its exponential is
0, and the rows come out normalised by themselves.
"""

from steps.pytorch import torch


def step(attn_scores, T, D):
    mask = torch.triu(torch.ones(T, T), diagonal=1)  # (T, T)
    masked_scores = attn_scores.masked_fill(mask.bool(), -torch.inf)  # (T, T)
    causal_weights = torch.softmax(masked_scores / D**0.5, dim=-1)  # (T, T)
    return mask, masked_scores, causal_weights


def wrong_dropped(attn_scores, mask, D):
    """masked_fill returns a new tensor, and here nothing takes it: the scores stay as
    they were (masked_fill_, with the underscore, would change them)"""
    attn_scores.masked_fill(mask.bool(), -torch.inf)
    unmasked_weights = torch.softmax(attn_scores / D**0.5, dim=-1)  # (T, T)
    return unmasked_weights


def wrong_diagonal(attn_scores, T, D):
    """the mask from the diagonal on: a token may not even see itself, and the first
    row, with nothing left to see, is nan"""
    strict_mask = torch.triu(torch.ones(T, T), diagonal=0)  # (T, T)
    strict_scores = attn_scores.masked_fill(strict_mask.bool(), -torch.inf)  # (T, T)
    strict_weights = torch.softmax(strict_scores / D**0.5, dim=-1)  # (T, T)
    return strict_weights


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
