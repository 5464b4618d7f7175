"""Step 12: dropout

Dropout sets some weights to 0 by chance, and makes the survivors larger by 1 / (1 - p),
so that the expected sum stays what it was. It works in training only. The weights here
are the plainest causal ones: each token looks at itself and at all before it, equally.
"""

from steps.pytorch import nn, seeded, torch


def step(T, seed):
    # (T, T)
    uniform_weights = torch.tril(torch.ones(T, T)) / torch.arange(1, T + 1).unsqueeze(1)
    half = nn.Dropout(p=0.5)
    with seeded(seed):
        half_mask = half(torch.ones(T, T)) > 0  # (T, T)
    with seeded(seed):
        half_dropped = half(uniform_weights)  # (T, T)
    half_sums = half_dropped.sum(dim=-1)  # (T)
    tenth = nn.Dropout(p=0.1)
    with seeded(seed):
        tenth_dropped = tenth(torch.ones(T, T))  # (T, T)
    return (
        uniform_weights,
        half,
        half_mask,
        half_dropped,
        half_sums,
        tenth,
        tenth_dropped,
    )


def wrong_factor(tenth_dropped):
    """survivors divided by p: at p=0.5 that is 1 / (1 - p) too, and the slip is hidden;
    at p=0.1 it makes them ten times as large"""
    tenth_wrong = (tenth_dropped > 0) / 0.1  # (T, T)
    return tenth_wrong


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
