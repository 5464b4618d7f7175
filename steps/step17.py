"""Step 17: mask and softmax

Article: "Each head gets its own attention matrix"

One mask for a sentence of this length serves every head: it has no batch and no head
axis, and masked_fill broadcasts it over both.
"""

from steps.pytorch import torch


def step(scaled, T):
    causal_mask = torch.triu(torch.ones(T, T), diagonal=1).bool()  # (T, T)
    masked = scaled.masked_fill(causal_mask, -torch.inf)  # (B, H, T, T)
    head_attention_weights = torch.softmax(masked, dim=-1)  # (B, H, T, T)
    return causal_mask, masked, head_attention_weights


def wrong_axis(masked):
    """softmax over the queries (dim=-2) instead of the keys: columns sum to 1 and rows,
    with several tokens, do not"""
    column_weights = torch.softmax(masked, dim=-2)  # (B, H, T, T)
    return column_weights


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
