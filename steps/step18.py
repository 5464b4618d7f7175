"""Step 18: dropout, collect values

Article: "Collect values, concatenate, then mix"

Dropout thins the attention weights, in training; then each head mixes its own value
vectors by what is left.

What is said of it, and checked: steps/claims/step18.py
"""

from steps.pytorch import nn, seeded, torch


def step(head_attention_weights, head_values, dropout, seed):
    mha_dropout = nn.Dropout(dropout)
    with seeded(seed):
        dropped_weights = mha_dropout(head_attention_weights)  # (B, H, T, T)
    head_contexts = dropped_weights @ head_values  # (B, H, T, D)
    return locals()


def wrong_scores(masked, mha_dropout, seed):
    """dropout on the scores, before the softmax

    A dropped score is 0, which is not a weight of 0, and a blocked score that is
    dropped is 0 x -inf, which is nan.
    """
    with seeded(seed):
        dropped_scores = mha_dropout(masked)  # (B, H, T, T)
    wrong_weights = torch.softmax(dropped_scores, dim=-1)  # (B, H, T, T)
    return locals()


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
