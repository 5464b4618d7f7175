"""What is said of step 20, and checked."""

from steps.compare import close, differ, equal
from steps.pytorch import torch
from steps.step20 import wrong_twice
from steps.words import count

INSTEAD = {"twice_wrong": "separately_joined"}
BRIEF = ("separate_contexts", "changed_contexts")
SHOWN = ("packed_contexts", "separate_contexts", "changed_contexts")


def merged(head_contexts):
    return head_contexts.transpose(1, 2).flatten(2)


def look(packed_contexts, separate_contexts, H):
    gap = (packed_contexts - separate_contexts).abs().max().item()
    return (
        f"packed_contexts and separate_contexts: {count(H, 'head')} out of one packed "
        f"projection, and from {'its' if H == 1 else 'their'} own weight rows. "
        + (f"No number is more than {gap:.0e} apart." if gap else "All are equal.")
    )


def notes(packed_contexts, changed_contexts, T):
    yield (
        "packed_contexts",
        "Without dropout, so not the head_contexts of step 18.",
    )
    moved = (packed_contexts != changed_contexts).any(dim=-1).any(dim=1)[0]
    yield (
        "changed_contexts",
        "The last input changed by 1 in every feature: "
        f"{int(moved.sum())} of {count(T, 'token')} "
        f"{'has' if int(moved.sum()) == 1 else 'have'} other contexts now.",
    )


def checks(
    packed_contexts, separate_contexts, separately_joined, changed_batch,
    changed_contexts, two_packed, two_separate, twice_wrong, head_attention_weights,
    causal_mask, out_proj, mha_W_query, mha_W_key, mha_W_value, inputs, B, T, H, D,
):  # fmt: skip
    tolerance = 1e-4
    yield (
        "packed heads equal heads computed separately from their weight rows",
        close(packed_contexts, separate_contexts, tolerance),
    )
    sums = head_attention_weights.sum(dim=-1)
    yield "rows of weights sum to 1 before dropout", close(sums, torch.ones_like(sums))
    ahead = head_attention_weights[..., causal_mask]
    if T > 1:
        yield "future weights are exactly 0", equal(ahead, torch.zeros_like(ahead))
    before = out_proj(merged(packed_contexts))
    after = out_proj(merged(changed_contexts))
    if T > 1:
        yield (
            f'changing the last input, "{inputs[-1]}", leaves the '
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
        "the first sentence of that batch gives what it gave alone",
        close(two_packed[:1], packed_contexts, tolerance),
    )
    yield (
        "the split and merge that are both wrong give the right shape",
        equal(tuple(twice_wrong.shape), tuple(merged(packed_contexts).shape)),
    )
    layers = mha_W_query, mha_W_key, mha_W_value
    again = wrong_twice(changed_batch, *layers, B, T, H, D)["twice_wrong"]
    yield (
        "the split and merge that are both wrong are blind to the future",
        equal(again[:, :-1], twice_wrong[:, :-1]),
    )
    if H > 1 and T > 1:
        yield (
            "the split and merge that are both wrong are not the separate heads",
            differ(twice_wrong, separately_joined),
        )
    else:
        yield (
            "with one head or one token that split and merge are the separate heads",
            close(twice_wrong, separately_joined, tolerance),
        )
