"""Step 22: stacked and integrated

Article: "Single-Head Attention and Stacked Attention Layers"

Two ways to several heads. MultiHeadAttentionWrapper stacks complete single heads, each
with weight matrices of its own, and puts their outputs side by side. MultiHeadAttention
has one wide projection per role and splits its result. Given the same numbers, they
agree.

What is said of it, and checked: steps/claims/step22.py
"""

from steps.attention import MultiHeadAttention, MultiHeadAttentionWrapper
from steps.pytorch import loaded, nn, seeded, torch


def step(x_batch, T, d_in, H, D, seed):
    with seeded(seed):
        wrapper = MultiHeadAttentionWrapper(d_in, D, T, 0.0, H)
    with seeded(seed):
        integrated = MultiHeadAttention(d_in, H * D, T, 0.0, H)
    integrated.out_proj = nn.Identity()  # the wrapper has no such layer
    wrapper_contexts = wrapper(x_batch)  # (B, T, H*D)

    heads = wrapper.heads
    stacked_query = torch.cat([h.W_query.weight for h in heads])  # (H*D, d_in)
    stacked_key = torch.cat([h.W_key.weight for h in heads])  # (H*D, d_in)
    stacked_value = torch.cat([h.W_value.weight for h in heads])  # (H*D, d_in)
    stacked = {
        "W_query.weight": stacked_query,
        "W_key.weight": stacked_key,
        "W_value.weight": stacked_value,
    }
    loaded(integrated, stacked)
    stacked_contexts = integrated(x_batch)  # (B, T, H*D)
    return locals()


def wrong_one_seed(x_batch, T, d_in, H, D, seed):
    """the wrapper's seed for the class too, and nothing stacked

    One seed draws the same numbers for both. The wrapper finishes one head before the
    next, the class one role before the next.
    """
    with seeded(seed):
        one_seed = MultiHeadAttention(d_in, H * D, T, 0.0, H)
    one_seed.out_proj = nn.Identity()
    one_seed_contexts = one_seed(x_batch)  # (B, T, H*D)
    return locals()


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
