"""Step 22: stacked and integrated

Article: "Single-Head Attention and Stacked Attention Layers"

Two ways to several heads. MultiHeadAttentionWrapper stacks complete single heads, each
with weight matrices of its own, and puts their outputs side by side. MultiHeadAttention
has one wide projection a role and splits its result. Given the same numbers, they
agree.
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
    one_seed_contexts = integrated(x_batch)  # (B, T, H*D)

    heads = wrapper.heads
    stacked_query = torch.cat([head.W_query.weight for head in heads])  # (H*D, d_in)
    stacked_key = torch.cat([head.W_key.weight for head in heads])  # (H*D, d_in)
    stacked_value = torch.cat([head.W_value.weight for head in heads])  # (H*D, d_in)
    stacked = {
        "W_query.weight": stacked_query,
        "W_key.weight": stacked_key,
        "W_value.weight": stacked_value,
    }
    integrated = loaded(integrated, stacked)
    stacked_contexts = integrated(x_batch)  # (B, T, H*D)
    classes = wrapper, integrated
    return classes, wrapper_contexts, one_seed_contexts, stacked_contexts


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
