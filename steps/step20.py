"""Step 20: the checks

Article: "The checks that made the shapes trustworthy"

Right shapes prove little. The packed heads are held against heads computed one at a
time from their weight rows, and the last input is changed to see which outputs notice.

packed_heads is steps 15 to 17 and the product with the values, without dropout;
separate_heads uses no view and no transpose of heads. Both are in steps/heads.py.

What is said of it, and checked: steps/claims/step20.py
"""

from steps.heads import packed_heads, separate_heads
from steps.pytorch import nn, torch


def step(x_batch, mha_W_query, mha_W_key, mha_W_value, T, H):
    layers = (mha_W_query, mha_W_key, mha_W_value)
    packed_contexts = packed_heads(x_batch, *layers, H)  # (B, H, T, D)
    separate_contexts = separate_heads(x_batch, *layers, H)  # (B, H, T, D)
    separately_joined = separate_contexts.transpose(1, 2).flatten(2)  # (B, T, H*D)

    is_last = (torch.arange(T) == T - 1).unsqueeze(-1)  # (T, 1)
    changed_batch = x_batch + is_last  # (B, T, d_in)
    changed_contexts = packed_heads(changed_batch, *layers, H)  # (B, H, T, D)

    two_inputs = torch.cat((x_batch, x_batch + 1))  # (2*B, T, d_in)
    two_packed = packed_heads(two_inputs, *layers, H)  # (2*B, H, T, D)
    two_separate = separate_heads(two_inputs, *layers, H)  # (2*B, H, T, D)
    return locals()


def wrong_twice(x_batch, mha_W_query, mha_W_key, mha_W_value, B, T, H, D):
    """view at once for the split, and a merge to match

    The output has the right shape and no path to the future: only heads computed
    separately can show that its numbers are not theirs.
    """
    wrong_queries = mha_W_query(x_batch).view(B, H, T, D)  # (B, H, T?, D)
    wrong_keys = mha_W_key(x_batch).view(B, H, T, D)  # (B, H, T?, D)
    wrong_values = mha_W_value(x_batch).view(B, H, T, D)  # (B, H, T?, D)
    # (B, H, T?, D)
    wrong_contexts = nn.functional.scaled_dot_product_attention(
        wrong_queries, wrong_keys, wrong_values, is_causal=True
    )
    twice_wrong = wrong_contexts.reshape(B, T, H * D)  # (B, T, H*D?)
    return locals()


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
