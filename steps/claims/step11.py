"""What is said of step 11, and checked."""

from steps.compare import close, equal, true


def notes(unmasked_weights, mask, T):
    ahead = int((unmasked_weights[mask.bool()] > 0).sum())
    yield (
        f"With the result of masked_fill dropped, {ahead} of the {T * (T - 1) // 2} "
        "weights that look ahead are above 0. Every shape is as it should be."
    )


def checks(
    masked_simple_norm, causal_weights, strict_weights, attn_scores, masked_scores, mask
):
    yield (
        "the short way equals the long way of step 10",
        close(causal_weights, masked_simple_norm),
    )
    kept = mask == 0
    yield (
        "scores that look back are untouched",
        equal(masked_scores[kept], attn_scores[kept]),
    )
    yield (
        "the mask from the diagonal on makes row 0 nan",
        true(strict_weights[0].isnan().all(), f"row 0 is {strict_weights[0].tolist()}"),
    )
