"""What is said of step 18, and checked."""

from steps.compare import Outcome, close
from steps.pytorch import seeded, torch
from steps.words import count

INSTEAD = {"wrong_weights": "dropped_weights"}
DRAWS = 20_000


def look(head_attention_weights, dropped_weights, inputs, follow, dropout):
    weights = head_attention_weights[0, 0, follow, : follow + 1].tolist()
    dropped = dropped_weights[0, 0, follow, : follow + 1].tolist()
    gone = dropped.count(0.0)
    row = f'"{inputs[follow]}"\'s {count(len(weights), "weight")} in head 1'
    if not dropout:
        return f"{row}. At p = 0 nothing is dropped, and the rows still sum to 1."
    return (
        f"{row}: {gone} dropped, {len(weights) - gone} kept and multiplied by "
        f"1 / (1 - {dropout:g}) = {1 / (1 - dropout):.4g}. The row sums to "
        f"{sum(dropped):.4f} now, and need not sum to 1."
    )


def notes(
    head_attention_weights, dropped_weights, head_values, mha_dropout,
    inputs, follow, dropout, seed, H,
):  # fmt: skip
    allowed = head_attention_weights > 0
    gone = int((allowed & (dropped_weights == 0)).sum())
    sums = dropped_weights[0, :, follow].sum(dim=-1).tolist()
    shown = ", ".join(f"{total:.4f}" for total in sums[:8]) + ", ..." * (len(sums) > 8)
    yield (
        "dropped_weights",
        f"{gone} of {count(int(allowed.sum()), 'weight')} dropped. "
        + ("The sum of " if H == 1 else "The sums of ")
        + f'"{inputs[follow]}"\'s {count(H, "row")}: {shown}. Step 12 says where the '
        "same seed drops others.",
    )
    yield (
        "head_contexts",
        "The article writes both in one: head_contexts = "
        "mha_dropout(head_attention_weights) @ head_values.",
    )
    if dropout:
        draws = drawn(head_attention_weights, mha_dropout, follow, seed)
        mean = (draws @ head_values[0, 0, : follow + 1]).mean(dim=0)
        undropped = head_attention_weights[0, 0, follow] @ head_values[0, 0]
        lost = int((draws == 0).all(dim=-1).sum())
        yield (
            "head_contexts",
            f'Why drop whole weights? Over {DRAWS:,} draws "{inputs[follow]}"\'s mean '
            f"context in head 1 begins {mean[0]:.4f}, undropped {undropped[0]:.4f}; in "
            f"{lost:,} the row lost every weight, {dropout:g}**{follow + 1} of them "
            f"expected: {DRAWS * dropout ** (follow + 1):,.0f}.",
        )


def drawn(head_attention_weights, mha_dropout, follow, seed):
    """(DRAWS, follow + 1): the followed token's weights in head 1, dropped anew."""
    row = head_attention_weights[0, 0, follow, : follow + 1]
    with seeded(seed):
        return mha_dropout(row.expand(DRAWS, -1))


def checks(
    head_attention_weights, dropped_weights, head_contexts, head_values, mha_dropout,
    follow, dropout, seed, H,
):  # fmt: skip
    kept = dropped_weights != 0
    yield (
        f"every survivor is multiplied by 1 / (1 - p) = {1 / (1 - dropout):.4g}",
        close(dropped_weights[kept], head_attention_weights[kept] / (1 - dropout)),
    )
    with seeded(seed):
        at_once = mha_dropout(head_attention_weights) @ head_values
    yield (
        "dropout and product in one statement give the same contexts",
        close(at_once, head_contexts),
    )
    last = dropped_weights[0, 0, -1].tolist()
    mixture = sum(w * row for w, row in zip(last, head_values[0, 0], strict=True))
    yield (
        "head 1's last context is the sum of weight x value, in a plain loop",
        close(head_contexts[0, 0, -1], mixture, atol=1e-4),
    )
    own = [dropped_weights[:, h] @ head_values[:, h] for h in range(H)]
    yield (
        "each head mixes its own values only",
        close(head_contexts, torch.stack(own, dim=1), atol=1e-4),
    )
    draws = drawn(head_attention_weights, mha_dropout, follow, seed)
    weights = head_attention_weights[0, 0, follow, : follow + 1]
    found = draws.mean(dim=0)
    # Six standard errors.
    error = 6 * weights * (dropout / (1 - dropout) / DRAWS) ** 0.5
    off = (found - weights).abs() - error - 1e-6
    yield (
        f"the mean of {DRAWS:,} draws of dropout is the undropped row",
        Outcome(bool((off <= 0).all()), f"off by {off.max().item():.3g} too much"),
    )
