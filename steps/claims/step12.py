"""What is said of step 12, and checked."""

from steps.compare import close, equal
from steps.pytorch import nn, seeded, torch
from steps.words import count

SHOWN = ("half_mask", "half_dropped")
INSTEAD = {"tenth_wrong": "tenth_dropped"}


def look(half_sums):
    sums = [f"{total:.4g}" for total in half_sums[:8].tolist()]
    more = ", ..." if len(half_sums) > 8 else ""
    return (
        f"the sums of the rows, 1 before dropout and {', '.join(sums)}{more} after. "
        "The expectation stays 1."
    )


def notes(half_mask, T):
    yield (
        "half_mask",
        f"True stays: {int(half_mask.sum())} of {count(T * T, 'place')}. Which ones "
        "depends on torch's random numbers: builds for Linux on Intel before torch 2.7 "
        "drew others from the same seed (pytorch issue 121595).",
    )


def checks(uniform_weights, half, half_mask, half_dropped, tenth, seed):
    yield (
        "p = 0.5 doubles every survivor and makes the rest 0",
        equal(half_dropped, uniform_weights * half_mask * 2),
    )
    ones = torch.ones(10_000)
    with seeded(seed):
        thinned, mean = tenth(ones), half(ones).mean()
    kept = thinned[thinned > 0]
    yield (
        "p = 0.1 multiplies survivors by 1 / (1 - p)",
        close(kept, torch.full_like(kept, 1 / 0.9)),
    )
    yield (
        "the mean of 10,000 ones after dropout is within 0.05 of 1",
        close(mean, torch.tensor(1.0), atol=0.05),
    )
    evaluated = nn.Dropout(p=0.5).eval()
    yield (
        "in eval mode dropout gives its input back",
        equal(evaluated(uniform_weights), uniform_weights),
    )
