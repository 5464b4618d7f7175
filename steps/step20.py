"""Step 20: the checks

Article: "The checks that made the shapes trustworthy"

Right shapes prove little. The packed heads are held against heads computed one at a time from
their weight rows, and the last input is changed to see which outputs notice.
"""

from steps.compare import close, differ, equal, true
from steps.heads import packed_heads, separate_heads
from steps.pytorch import nn, torch


def step(x_batch, mha_W_query, mha_W_key, mha_W_value, H):
    layers = (mha_W_query, mha_W_key, mha_W_value)
    packed_contexts = packed_heads(x_batch, *layers, H)  # (B, H, T, D)
    separate_contexts = separate_heads(x_batch, *layers, H)  # (B, H, T, D)

    changed_batch = torch.cat((x_batch[:, :-1], x_batch[:, -1:] + 1), dim=1)  # (B, T, d_in)
    changed_contexts = packed_heads(changed_batch, *layers, H)  # (B, H, T, D)

    B = 2  # two distinct inputs
    two_inputs = torch.cat((x_batch, x_batch.flip(1) + 1))  # (B, T, d_in)
    two_packed = packed_heads(two_inputs, *layers, H)  # (B, H, T, D)
    two_separate = separate_heads(two_inputs, *layers, H)  # (B, H, T, D)
    return packed_contexts, separate_contexts, changed_contexts, two_packed, two_separate


def wrong_twice(x_batch, mha_W_query, mha_W_key, mha_W_value, B, T, H, D):
    """view at once for the split, and a merge to match: the output has the right shape and no
    path to the future, so neither check sees it; only heads computed separately do"""
    wrong_queries = mha_W_query(x_batch).view(B, H, T, D)  # (B, H, T?, D)
    wrong_keys = mha_W_key(x_batch).view(B, H, T, D)  # (B, H, T?, D)
    wrong_values = mha_W_value(x_batch).view(B, H, T, D)  # (B, H, T?, D)
    wrong_contexts = nn.functional.scaled_dot_product_attention(  # masked, scaled, softmax
        wrong_queries, wrong_keys, wrong_values, is_causal=True
    )  # (B, H, T?, D)
    twice_wrong = wrong_contexts.reshape(B, T, H * D)  # (B, T, H*D?)
    return twice_wrong


def merged(head_contexts):
    return head_contexts.transpose(1, 2).flatten(2)


def checks(
    packed_contexts, separate_contexts, changed_contexts, two_packed, two_separate, twice_wrong,
    head_attention_weights, causal_mask, out_proj, x_batch, mha_W_query, mha_W_key, mha_W_value,
    inputs, B, T, H, D,
):
    tolerance = 1e-4
    yield "packed heads equal heads computed separately from their weight rows", close(
        packed_contexts, separate_contexts, tolerance
    )
    sums = head_attention_weights.sum(dim=-1)
    yield "rows sum to 1 before dropout", close(sums, torch.ones_like(sums))
    ahead = head_attention_weights[..., causal_mask]
    yield "future weights are exactly 0", equal(ahead, torch.zeros_like(ahead))
    before = out_proj(merged(packed_contexts))
    after = out_proj(merged(changed_contexts))
    yield f"changing the last input ({inputs[-1]}) leaves the {T - 1} earlier outputs bit-equal", equal(
        after[:, :-1], before[:, :-1]
    )
    yield "and changes its own output", differ(after[:, -1], before[:, -1])
    yield "a batch of two distinct inputs passes the head check too", close(
        two_packed, two_separate, tolerance
    )
    yield "and its first sentence gives what it gave alone", close(
        two_packed[:1], packed_contexts, tolerance
    )
    yield "the split and merge that are both wrong give the right shape", equal(
        tuple(twice_wrong.shape), tuple(merged(packed_contexts).shape)
    )
    changed = torch.cat((x_batch[:, :-1], x_batch[:, -1:] + 1), dim=1)
    again = wrong_twice(changed, mha_W_query, mha_W_key, mha_W_value, B, T, H, D)
    yield "and are blind to the future", equal(again[:, :-1], twice_wrong[:, :-1])
    if H > 1 and T > 1:
        yield "but they are not the separate heads", differ(twice_wrong, merged(separate_contexts))
    else:
        yield "and, with one head or one token, are the separate heads", close(
            twice_wrong, merged(separate_contexts), tolerance
        )


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
