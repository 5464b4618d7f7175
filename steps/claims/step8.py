"""What is said of step 8, and checked."""

from steps.compare import close
from steps.layout import Table
from steps.pytorch import seeded, torch
from steps.words import count, products, row

SHOWN = ("one_query", "one_weights")
WIDTHS = (4, 16, 64, 256)


def look(one_query, inputs, follow, d_in, D):
    return (
        f'the query of "{inputs[follow]}", {row(one_query.tolist())}: W_query makes '
        f"{count(D, 'number')} out of {d_in}."
    )


def notes(x, W_query, one_query, one_scores, follow, D, seed):
    terms = products(x[follow].tolist(), W_query[:, 0].tolist())
    yield "one_query", f"{one_query[0].item():.4f} = {terms}"
    unscaled = torch.softmax(one_scores, dim=-1).max().item()
    yield (
        "one_weights",
        f"The scores {row(one_scores.tolist(), follow)} are divided by the square "
        f"root of {D}; undivided, the largest weight would be {unscaled:.4f}. The "
        "spread of dot products grows with the root of their width, and softmax of "
        "widely spread scores is nearly all or nothing. Of 512 random pairs each:",
    )
    deviations, divided = ["standard deviation of q . k"], ["divided by the root"]
    with seeded(seed):
        for width in WIDTHS:
            sums = (torch.randn(512, width) * torch.randn(512, width)).sum(dim=-1)
            deviations.append(f"{sums.std().item():.2f}")
            divided.append(f"{sums.std().item() / width**0.5:.2f}")
    header = ("width", *map(str, WIDTHS))
    yield "one_weights", Table(header, (tuple(deviations), tuple(divided)))


def checks(x, W_query, one_query, one_weights, inputs, follow, D):
    loop = one_query.new_tensor(
        [
            sum(x[follow, i].item() * W_query[i, j].item() for i in range(len(W_query)))
            for j in range(D)
        ]
    )
    yield (
        f'the query of "{inputs[follow]}" equals a loop over the features of x',
        close(one_query, loop, atol=1e-4),
    )
    yield (
        f'the weights of "{inputs[follow]}" sum to 1',
        close(one_weights.sum(), torch.tensor(1.0)),
    )
