"""What is said of step 20, and checked."""

from steps.compare import close, differ, equal
from steps.pytorch import torch
from steps.step20 import wrong_twice
from steps.words import count


def merged(head_contexts):
    return head_contexts.transpose(1, 2).flatten(2)


def checks(
    packed_contexts,
    separate_contexts,
    changed_batch,
    changed_contexts,
    two_packed,
    two_separate,
    twice_wrong,
    head_attention_weights,
    causal_mask,
    out_proj,
    mha_W_query,
    mha_W_key,
    mha_W_value,
    inputs,
    B,
    T,
    H,
    D,
):
    tolerance = 1e-4
    yield (
        "packed heads equal heads computed separately from their weight rows",
        close(packed_contexts, separate_contexts, tolerance),
    )
    sums = head_attention_weights.sum(dim=-1)
    yield "rows sum to 1 before dropout", close(sums, torch.ones_like(sums))
    ahead = head_attention_weights[..., causal_mask]
    if T > 1:
        yield "future weights are exactly 0", equal(ahead, torch.zeros_like(ahead))
    before = out_proj(merged(packed_contexts))
    after = out_proj(merged(changed_contexts))
    if T > 1:
        yield (
            f"changing the last input ({inputs[-1]}) leaves the "
            f"{count(T - 1, 'earlier output')} bit-equal",
            equal(after[:, :-1], before[:, :-1]),
        )
    yield (
        "changing the last input changes its own output",
        differ(after[:, -1], before[:, -1]),
    )
    yield (
        "a batch of two distinct inputs passes the head check too",
        close(two_packed, two_separate, tolerance),
    )
    yield (
        "and its first sentence gives what it gave alone",
        close(two_packed[:1], packed_contexts, tolerance),
    )
    yield (
        "the split and merge that are both wrong give the right shape",
        equal(tuple(twice_wrong.shape), tuple(merged(packed_contexts).shape)),
    )
    again = wrong_twice(changed_batch, mha_W_query, mha_W_key, mha_W_value, B, T, H, D)
    yield "and are blind to the future", equal(again[:, :-1], twice_wrong[:, :-1])
    if H > 1 and T > 1:
        yield (
            "but they are not the separate heads",
            differ(twice_wrong, merged(separate_contexts)),
        )
    else:
        yield (
            "and, with one head or one token, are the separate heads",
            close(twice_wrong, merged(separate_contexts), tolerance),
        )
