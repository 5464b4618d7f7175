"""Step 23: the first wrong shape

Article: "Single-Head Attention and Stacked Attention Layers"

Print the shape after each step: the first that differs from the expected one is where
the bug begins; the error message at the end is usually a symptom, not the cause. But
many bugs change no shape. One is planted in a class here, run beside that of step 21 on
the same input with the same weights. Your own: python -m steps.step23 my_attention.py

What is said of it, and checked: steps/claims/step23.py
"""

from steps.attention import MultiHeadAttention
from steps.debugger.planted import PlantedAttention, mended
from steps.pytorch import loaded, seeded, torch


def step(x_batch, mha_weights, context_length, d_in, H, D, seed):
    d_out = H * D
    with seeded(seed):  # for the weights they are made with, which are replaced
        right = MultiHeadAttention(d_in, d_out, context_length, 0.0, H)
        planted = PlantedAttention(d_in, d_out, context_length, 0.0, H)
        repaired = mended()(d_in, d_out, context_length, 0.0, H)
    for module in (right, planted, repaired):
        loaded(module, mha_weights)
    right_contexts = right(x_batch)  # (B, T, d_out)
    planted_contexts = planted(x_batch)  # (B, T, d_out)
    repaired_contexts = repaired(x_batch)  # (B, T, d_out)
    return locals()


def wrong_axes(x_batch, right, B, T, H, D):
    """transpose(2, 3), where tokens and heads are to change places

    The axes are wrong from there on; the last line is the first that can complain.
    """
    q = right.W_query(x_batch).view(B, T, H, D).transpose(2, 3)  # (B, T, D, H)
    k = right.W_key(x_batch).view(B, T, H, D).transpose(2, 3)  # (B, T, D, H)
    scores = q @ k.transpose(2, 3)  # (B, T, D, D)
    blocked_scores = scores.masked_fill(right.mask[:T, :T], -torch.inf)
    return locals()


if __name__ == "__main__":
    from steps.debugger.command import step as show

    show(__file__)
