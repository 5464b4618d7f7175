"""Step 12: dropout

Dropout sets some weights to 0 by chance, and makes the survivors larger by 1 / (1 - p), so
that the expected sum stays what it was. It works in training only. The weights here are the
plainest causal ones: each token looks at itself and at all before it, equally.
"""

from steps.compare import close, equal, true
from steps.pytorch import nn, seeded, torch


def step(T, seed):
    uniform_weights = torch.tril(torch.ones(T, T)) / torch.arange(1, T + 1).unsqueeze(1)  # (T, T)
    half = nn.Dropout(p=0.5)
    with seeded(seed):
        half_mask = half(torch.ones(T, T)) > 0  # (T, T)
    with seeded(seed):
        half_dropped = half(uniform_weights)  # (T, T)
    half_sums = half_dropped.sum(dim=-1)  # (T)
    tenth = nn.Dropout(p=0.1)
    with seeded(seed):
        tenth_dropped = tenth(torch.ones(T, T))  # (T, T)
    return uniform_weights, half, half_mask, half_dropped, half_sums, tenth, tenth_dropped


def wrong_factor(uniform_weights, tenth_dropped):
    """survivors divided by p: at p=0.5 that is 1 / (1 - p) too, and the slip is hidden; at
    p=0.1 it makes them ten times as large"""
    tenth_wrong = (tenth_dropped > 0) / 0.1  # (T, T)
    return tenth_wrong


def notes(half_sums, tenth_dropped):
    yield (
        "Rows after dropout at p=0.5 sum to "
        + ", ".join(f"{total:.4g}" for total in half_sums[:12].tolist())
        + (", ..." if len(half_sums) > 12 else "")
        + ": only the expectation is 1."
    )
    found = sorted({f"{value:.4f}" for value in tenth_dropped.unique().tolist()})
    yield f"At p=0.1 a one becomes one of: {', '.join(found)}; 1 / (1 - 0.1) is {1 / 0.9:.4f}."
    yield (
        "Which weights are dropped depends on torch's random numbers: builds for Linux on Intel "
        "before torch 2.7 drew others from the same seed (pytorch issue 121595)."
    )


def checks(uniform_weights, half, half_mask, half_dropped, tenth_dropped, seed):
    yield "p=0.5 doubles every survivor and zeroes the rest", equal(
        half_dropped, uniform_weights * half_mask * 2
    )
    kept = tenth_dropped[tenth_dropped > 0]
    yield "p=0.1 multiplies survivors by 1 / (1 - p)", close(kept, torch.full_like(kept, 1 / 0.9))
    with seeded(seed):
        mean = half(torch.ones(10_000)).mean()
    yield "the mean of 10,000 ones after dropout is within 0.05 of 1", close(
        mean, torch.tensor(1.0), atol=0.05
    )
    evaluated = nn.Dropout(p=0.5).eval()
    yield "in eval mode dropout gives its input back", equal(
        evaluated(uniform_weights), uniform_weights
    )


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
