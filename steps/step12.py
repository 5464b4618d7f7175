"""Step 12: dropout

Dropout sets some weights to 0 by chance and multiplies the others by 1 / (1 - p), in
training only. Here each token looks equally at itself and at all before it.

What is said of it, and checked: steps/claims/step12.py
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
    return locals()


def wrong_factor(tenth_dropped):
    """survivors divided by p

    The factor is 1 / (1 - p), 1.1111 here. At p = 0.5 both are 2, which hides the slip.
    """
    tenth_wrong = (tenth_dropped > 0) / 0.1  # (T, T)
    return locals()


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
