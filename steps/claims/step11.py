"""What is said of step 11, and checked."""

import math

from steps.claims.step10 import LEAST, not_counting
from steps.compare import close, equal, true
from steps.words import row, token

INSTEAD = {"unmasked_weights": "causal_weights"}
BRIEF = ("causal_weights",)
SHOWN = ("masked_scores", "causal_weights")


def look(causal_weights, row_sums, inputs, follow):
    weights = row(causal_weights[follow].tolist(), follow)
    lost = row_sums[follow].item() < LEAST
    also = "where step 10 has too few digits" if lost else "the same as in step 10"
    return f'the row of "{inputs[follow]}", {weights}: one softmax, {also}.'


def notes(zero_weights, strict_weights, mask, inputs, follow, T):
    blocked = mask.bool()
    yield (
        "masked_scores",
        f"-inf in {int(blocked.sum())} of {T * T} places, above the diagonal. The "
        "scores on and below it are as they were."
        if T > 1
        else "Nothing is above the diagonal: the score stays as it was.",
    )
    future = (zero_weights * mask).sum(dim=-1)
    most = int(future.argmax())
    yield (
        "wrong_zero",
        f"{token(inputs, most)} gives the future {future[most].item():.4f} of its "
        f"weight: its row is {row(zero_weights[most].tolist(), most)}."
        if T > 1
        else "With one token nothing is ahead, and the two are the same.",
    )
    own = row(strict_weights[follow].tolist(), follow)
    yield (
        "wrong_diagonal",
        f"Row 0 is {row(strict_weights[0].tolist())}"
        + (f", that of {token(inputs, follow)} {own}." if follow else "."),
    )


def checks(
    row_sums, masked_simple_norm, causal_weights, strict_weights, zero_weights,
    attn_scores, masked_scores, mask, D,
):  # fmt: skip
    alive = row_sums[:, 0] >= LEAST
    yield (
        f"the short way equals the long way of step 10{not_counting(row_sums)}",
        close(causal_weights[alive], masked_simple_norm[alive]),
    )
    kept = mask == 0
    yield (
        "scores that look back are untouched",
        equal(masked_scores[kept], attn_scores[kept]),
    )
    first = attn_scores[0].tolist()  # only its own score is not made 0
    scaled = [score / math.sqrt(D) * (i == 0) for i, score in enumerate(first)]
    powers = [math.exp(score - max(scaled)) for score in scaled]
    yield (
        "a score times 0 keeps a weight: row 0 equals a loop with exp(0) in the future",
        close(
            zero_weights[0],
            zero_weights.new_tensor([power / sum(powers) for power in powers]),
        ),
    )
    yield (
        "the mask from the diagonal on makes row 0 nan",
        true(strict_weights[0].isnan().all(), f"row 0 is {strict_weights[0].tolist()}"),
    )
