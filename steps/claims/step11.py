"""What is said of step 11, and checked."""

from steps.compare import close, equal, true


def notes(unmasked_weights, mask, T):
    weights = unmasked_weights[mask.bool()]
    ahead, shown = int((weights > 0).sum()), int((weights >= 5e-5).sum())
    tiny = ahead - shown
    small = f" ({tiny} of them too small for four decimals)" if tiny else ""
    if T > 1:
        yield (
            f"With the result of masked_fill dropped, {ahead} of the "
            f"{T * (T - 1) // 2} weights that look ahead are above 0{small}. Every "
            "shape is as it should be."
        )
    else:
        yield "With one token nothing is ahead: nothing shows that the mask is lost."


def checks(
    masked_simple_norm, causal_weights, strict_weights, attn_scores, masked_scores, mask
):
    alive = ~masked_simple_norm.isnan().any(dim=-1)
    where = "" if alive.all() else ", in the rows where that is not nan"
    yield (
        f"the short way equals the long way of step 10{where}",
        close(causal_weights[alive], masked_simple_norm[alive]),
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
