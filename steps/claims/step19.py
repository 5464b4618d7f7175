"""What is said of step 19, and checked."""

from steps.compare import close, equal, true
from steps.pytorch import torch
from steps.step19 import wrong_merge
from steps.words import count


def notes(head_contexts, mha_context_vectors, d_in, T, H):
    turned = head_contexts.transpose(1, 2)
    if turned.is_contiguous():
        yield (
            f"With {count(H, 'head')} and {count(T, 'token')} the transposed tensor "
            "is contiguous as it is: there is nothing to copy, and view alone works."
        )
    else:
        yield (
            f"The transpose changes the strides, {head_contexts.stride()} to "
            f"{turned.stride()}, and moves nothing. A view can merge two axes only if "
            "one stride spans both; contiguous copies the numbers into that order. "
            "(reshape would copy by itself.)"
        )
    width = mha_context_vectors.shape[-1]
    yield (
        f"{count(width, 'feature')} out, {d_in} in. A GPT block adds this output to "
        "its input (the residual connection), so it needs the two widths equal; "
        + ("here they are." if width == d_in else "here they are not.")
    )
    yield (
        "The outputs are context features, not vocabulary probabilities, and nothing "
        "is trained."
    )


def checks(
    head_contexts,
    joined_contexts,
    out_proj,
    mha_context_vectors,
    inputs,
    follow,
    B,
    T,
    H,
    D,
):
    side_by_side = torch.cat([head_contexts[:, head] for head in range(H)], dim=-1)
    yield (
        "joined_contexts is the heads' contexts side by side",
        equal(joined_contexts, side_by_side),
    )
    alone = out_proj(joined_contexts[:, follow])
    yield (
        f"out_proj works on each token by itself: {inputs[follow]} alone gives the "
        "same row",
        close(mha_context_vectors[:, follow], alone),
    )
    yield (
        "the final shape is (B, T, H*D)",
        equal(tuple(mha_context_vectors.shape), (B, T, H * D)),
    )
    # On index numbers: dropout may have made rows of contexts all 0, and so alike.
    places = torch.arange(B * T * H * D).view(B, H, T, D)
    right, wrong = places.transpose(1, 2).flatten(2), wrong_merge(places, B, T, H, D)
    same = torch.equal(wrong, right)
    if H > 1 and T > 1:
        yield (
            "merging without the transpose gives this shape and other places",
            true(not same, "every place is the same"),
        )
    else:
        yield (
            "with one head or one token the merge needs no transpose",
            true(same, "rows differ"),
        )
