"""What is said of step 10, and checked."""

from steps.compare import close, true
from steps.pytorch import torch
from steps.words import count, token

SHOWN = ("attn_weights", "masked_simple_norm")
BRIEF = ("attn_weights",)
LEAST = 1e-30  # of a row's sum: below it float32 keeps few digits of the weights


def look(attn_weights, row_sums, inputs, follow, T):
    kept = row_sums[follow].item()
    future = attn_weights[follow, follow + 1 :].sum().item()
    if follow + 1 == T:
        return (
            f'the row of "{inputs[follow]}". Nothing comes after it: all its weights '
            "stay, and dividing by their sum, 1, changes nothing."
        )
    return (
        f'the row of "{inputs[follow]}": {future:.4f} of it is the future\'s; the '
        f"rest is divided by its sum, {kept:.4f}."
    )


def notes(row_sums):
    dead = int((row_sums < LEAST).sum())
    yield (
        "masked_simple_norm",
        "Divided by its sum, a row is softmax over the tokens that it may see, and "
        "no others.",
    )
    if dead:
        yield (
            "masked_simple_norm",
            f"But in {count(dead, 'row')} the visible weights are so small that "
            "float32 has few digits of them or none, and 0 / 0 is nan; the short way "
            "of step 11 has no such rows.",
        )


def not_counting(row_sums):
    """What a claim about the rows leaves out: "" where nothing."""
    dead = int((row_sums < LEAST).sum())
    return f" (not counting {count(dead, 'row')} too small for float32)" * (dead > 0)


def checks(mask_simple, row_sums, masked_simple_norm, inputs, T):
    yield (
        f"the weights of {token(inputs, T - 1)}, which sees every token, sum to 1 "
        "without renormalising",
        close(row_sums[-1], torch.ones(1)),
    )
    alive = row_sums[:, 0] >= LEAST
    norm, kept = masked_simple_norm[alive], mask_simple[alive]
    but = not_counting(row_sums)
    yield (
        f"after renormalising every row sums to 1{but}",
        close(norm.sum(dim=-1), torch.ones(len(norm))),
    )
    if T > 1:
        yield (
            f"after renormalising every weight ahead of a token is 0{but}",
            true((norm[kept == 0] == 0).all(), "one is not"),
        )
