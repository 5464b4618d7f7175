"""What is said of step 12, and checked."""

from steps.compare import close, equal
from steps.pytorch import nn, seeded, torch


def notes(half_sums, tenth_dropped):
    yield (
        "Rows after dropout at p=0.5 sum to "
        + ", ".join(f"{total:.4g}" for total in half_sums[:12].tolist())
        + (", ..." if len(half_sums) > 12 else "")
        + ": only the expectation is 1."
    )
    found = sorted({f"{value:.4f}" for value in tenth_dropped.unique().tolist()})
    yield (
        f"At p=0.1 a one becomes one of: {', '.join(found)}; 1 / (1 - 0.1) is "
        f"{1 / 0.9:.4f}."
    )
    yield (
        "Which weights are dropped depends on torch's random numbers: builds for "
        "Linux on Intel before torch 2.7 drew others from the same seed (pytorch "
        "issue 121595)."
    )


def checks(uniform_weights, half, half_mask, half_dropped, tenth, seed):
    yield (
        "p=0.5 doubles every survivor and zeroes the rest",
        equal(half_dropped, uniform_weights * half_mask * 2),
    )
    ones = torch.ones(10_000)
    with seeded(seed):
        thinned, mean = tenth(ones), half(ones).mean()
    kept = thinned[thinned > 0]
    yield (
        "p=0.1 multiplies survivors by 1 / (1 - p)",
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
