"""Step 8: trainable q, k, v

Three weight matrices make a query, a key and a value of every input, so that training can
change what is compared and what is passed on. First for the followed token alone.
"""

from steps.compare import close
from steps.pytorch import nn, seeded, torch
from steps.walk.order import Table


def step(x, follow, d_in, D, seed):
    with seeded(seed):
        W_query = nn.Parameter(torch.rand(d_in, D))  # (d_in, D)
        W_key = nn.Parameter(torch.rand(d_in, D))  # (d_in, D)
        W_value = nn.Parameter(torch.rand(d_in, D))  # (d_in, D)
    one_query = x[follow] @ W_query  # (D)
    keys = x @ W_key  # (T, D)
    values = x @ W_value  # (T, D)
    one_scores = keys @ one_query  # (T)
    one_weights = torch.softmax(one_scores / D**0.5, dim=-1)  # (T)
    one_context = one_weights @ values  # (D)
    return W_query, W_key, W_value, one_query, keys, values, one_scores, one_weights, one_context


def notes(seed):
    yield (
        "Why divide by the square root of the key width? A dot product adds one term per "
        "feature, so its spread grows with the square root of the width, and softmax of widely "
        "spread scores puts nearly all weight on one token. Measured on 512 random pairs of "
        "queries and keys a width (standard deviation of q . k):"
    )
    rows = []
    with seeded(seed):
        for width in (4, 16, 64, 256):
            products = (torch.randn(512, width) * torch.randn(512, width)).sum(dim=-1)
            spread, root = products.std().item(), width**0.5
            rows.append((str(width), f"{spread:.2f}", f"{root:.0f}", f"{spread / root:.2f}"))
    yield Table(("width", "spread", "square root", "spread after dividing"), tuple(rows))


def checks(x, W_query, one_query, keys, one_scores, one_weights, follow, D):
    loop = one_query.new_tensor(
        [sum(x[follow, i].item() * W_query[i, j].item() for i in range(len(W_query)))
         for j in range(D)]
    )
    yield "the query equals a loop over features", close(one_query, loop, atol=1e-4)
    yield "the weights sum to 1", close(one_weights.sum(), torch.tensor(1.0))


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
