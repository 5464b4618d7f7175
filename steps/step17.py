"""Step 17: mask and softmax

Article: "Each head gets its own attention matrix"

One mask serves every sentence of this length and every head: it has neither axis.

What is said of it, and checked: steps/claims/step17.py
"""

from steps.pytorch import torch


def step(scaled, T):
    causal_mask = torch.triu(torch.ones(T, T), diagonal=1).bool()  # (T, T)
    masked = scaled.masked_fill(causal_mask, -torch.inf)  # (B, H, T, T)
    head_attention_weights = torch.softmax(masked, dim=-1)  # (B, H, T, T)
    return locals()


def wrong_axis(masked):
    """softmax over the queries, dim=-2, instead of the keys

    Each column of weights sums to 1 then, and a token's own row need not.
    """
    column_weights = torch.softmax(masked, dim=-2)  # (B, H, T, T)
    return locals()


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
