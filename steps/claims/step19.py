"""What is said of step 19, and checked."""

from steps.compare import close, equal, true
from steps.pytorch import torch
from steps.words import count, products

INSTEAD = {
    "not_laid_out": "joined_contexts",
    "wrongly_joined": "joined_contexts",
}

SHOWN = ("joined_contexts", "mha_context_vectors")


def look(inputs, follow, mha_context_vectors, H, D):
    width = mha_context_vectors.shape[-1]
    if H == 1:
        return (
            f'"{inputs[follow]}"\'s context of the one head, {count(D, "number")}, '
            f"becomes {count(width, 'feature')} after out_proj."
        )
    return (
        f'"{inputs[follow]}"\'s {H} contexts of {count(D, "number")}, one per head. '
        f"Side by side they are {H} x {D} = {H * D} numbers, and only out_proj mixes "
        "them."
    )


def notes(
    head_contexts, joined_contexts, out_proj, mha_context_vectors,
    inputs, follow, d_in, T, H,
):  # fmt: skip
    turned = head_contexts.transpose(1, 2)
    heads, tokens = count(H, "head"), count(T, "token")
    copied = (
        f"With {heads} and {tokens} the transposed tensor is contiguous as it is: "
        "there is nothing to copy, and view alone works."
        if turned.is_contiguous()
        else f"transpose makes strides {turned.stride()} of {head_contexts.stride()} "
        "and moves nothing; contiguous copies; then one stride spans both axes, and "
        "view merges them."
    )
    yield "joined_contexts", copied
    row, first = joined_contexts[0, follow].tolist(), out_proj.weight[0].tolist()
    yield (
        "mha_context_vectors",
        f'"{inputs[follow]}"\'s first feature, by row 0 of out_proj.weight: '
        f"{products(row, first)} = {mha_context_vectors[0, follow, 0].item():.4f}. "
        "Each token is projected by itself: out_proj makes no path to a future token.",
    )
    width = mha_context_vectors.shape[-1]
    same = "they are" if width == d_in else "deliberately they are not"
    yield (
        "mha_context_vectors",
        f"{count(width, 'feature')} out, {d_in} in. A GPT block adds the two, the "
        f"residual connection, and needs them equal; here {same}. These are context "
        "features, not vocabulary probabilities.",
    )
    yield (
        "mha_context_vectors",
        "Why out_proj, if the width is right already? It can be folded into each "
        "head's value matrix (a check below): what mixes heads is the sum over them.",
    )


def folded(x_batch, dropped_weights, value, out_proj, H, D):
    """The output with out_proj's columns folded into the heads' value matrices."""
    total = 0
    for h in range(H):
        rows = slice(h * D, (h + 1) * D)
        matrix = out_proj.weight[:, rows] @ value.weight[rows]  # (d_out, d_in)
        total = total + dropped_weights[:, h] @ (x_batch @ matrix.T)
    return total


def checks(
    x_batch, dropped_weights, mha_W_value, head_contexts, joined_contexts, out_proj,
    mha_context_vectors, inputs, follow, B, T, H, D,
):  # fmt: skip
    side_by_side = torch.cat([head_contexts[:, head] for head in range(H)], dim=-1)
    yield (
        "joined_contexts is the heads' contexts side by side",
        equal(joined_contexts, side_by_side),
    )
    alone = out_proj(joined_contexts[:, follow])
    yield (
        f'out_proj works on each token by itself: "{inputs[follow]}" alone gives the '
        "same row",
        close(mha_context_vectors[:, follow], alone),
    )
    yield (
        "with out_proj folded into each head's value matrix the output is the same",
        close(
            folded(x_batch, dropped_weights, mha_W_value, out_proj, H, D),
            mha_context_vectors,
            atol=1e-4,
        ),
    )
    yield (
        "the final shape is (B, T, H*D)",
        equal(tuple(mha_context_vectors.shape), (B, T, H * D)),
    )
    # On index numbers: dropout may have made rows of contexts all 0, and so alike.
    places = torch.arange(B * T * H * D).view(B, H, T, D)
    right, wrong = places.transpose(1, 2).flatten(2), places.reshape(B, T, H * D)
    same = torch.equal(wrong, right)
    if H > 1 and T > 1:
        yield (
            "merging without the transpose puts numbers in other places",
            true(not same, "every place is the same"),
        )
    else:
        yield (
            "with one head or one token the merge needs no transpose",
            true(same, "rows differ"),
        )
