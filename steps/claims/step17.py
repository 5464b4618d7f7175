"""What is said of step 17, and checked."""

from steps.compare import close, differ, equal
from steps.pytorch import nn, torch
from steps.words import listed


def notes(causal_mask, inputs, follow, H):
    blocked = causal_mask[follow].tolist()
    seen = [
        token
        for token, hidden in zip(inputs[:follow], blocked, strict=False)
        if not hidden
    ]
    after = inputs[blocked.index(True) :] if True in blocked else []
    hidden = [f'"{token}"' for token in after]
    heads = (
        "The head lets"
        if H == 1
        else "Both heads let"
        if H == 2
        else f"All {H} heads let"
    )
    yield (
        f"{heads} {inputs[follow]} use {listed([*seen, 'itself'])}"
        + (
            f", while blocking {listed(hidden)}."
            if hidden
            else "; nothing comes after it."
        )
    )
    yield (
        "Which way round is a mask of truth values? For masked_fill and "
        "nn.MultiheadAttention True means blocked; for scaled_dot_product_attention "
        "it means may attend. Check both ways."
    )


def checks(
    causal_mask,
    masked,
    head_attention_weights,
    column_weights,
    head_queries,
    head_keys,
    head_values,
):
    sums = head_attention_weights.sum(dim=-1)
    yield "every row of every head sums to 1", close(sums, torch.ones_like(sums))
    ahead = head_attention_weights[..., causal_mask]
    if ahead.numel():
        yield (
            f"all {ahead.numel()} future weights are exactly 0",
            equal(ahead, torch.zeros_like(ahead)),
        )
    yield (
        "the mask has no batch or head axis: every head is masked alike",
        equal(masked == -torch.inf, causal_mask.expand_as(masked)),
    )
    columns = column_weights.sum(dim=-2)
    yield (
        "softmax over dim=-2 makes the columns sum to 1",
        close(columns, torch.ones_like(columns)),
    )
    fused = nn.functional.scaled_dot_product_attention(
        head_queries, head_keys, head_values, attn_mask=~causal_mask
    )
    yield (
        "scaled_dot_product_attention agrees when given ~causal_mask",
        close(head_attention_weights @ head_values, fused, atol=1e-4),
    )
    if head_attention_weights.shape[1] > 1 and head_attention_weights.shape[2] > 1:
        yield (
            "heads 1 and 2 weigh the same tokens differently",
            differ(head_attention_weights[:, 0], head_attention_weights[:, 1]),
        )
