"""What is said of step 8, and checked."""

from steps.compare import close
from steps.pytorch import seeded, torch
from steps.walk.order import Table


def notes(seed):
    yield (
        "Why divide by the square root of the key width? A dot product adds one term "
        "per feature, so its spread grows with the square root of the width, and "
        "softmax of widely spread scores puts nearly all weight on one token. "
        "Measured on 512 random pairs of queries and keys for each width "
        "(standard deviation of q . k):"
    )
    rows = []
    with seeded(seed):
        for width in (4, 16, 64, 256):
            products = (torch.randn(512, width) * torch.randn(512, width)).sum(dim=-1)
            spread, root = products.std().item(), width**0.5
            rows.append(
                (str(width), f"{spread:.2f}", f"{root:.0f}", f"{spread / root:.2f}")
            )
    yield Table(
        ("width", "spread", "square root", "spread after dividing"), tuple(rows)
    )


def checks(x, W_query, one_query, one_weights, follow, D):
    loop = one_query.new_tensor(
        [
            sum(x[follow, i].item() * W_query[i, j].item() for i in range(len(W_query)))
            for j in range(D)
        ]
    )
    yield "the query equals a loop over features", close(one_query, loop, atol=1e-4)
    yield "the weights sum to 1", close(one_weights.sum(), torch.tensor(1.0))
