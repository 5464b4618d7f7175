"""What is said of step 14, and checked."""

from steps.compare import close, equal
from steps.walk.order import Table
from steps.words import span


def notes(H, D):
    rows = []
    for head in range(H):
        own = span("", head * D, D)
        rows.append((f"head {head + 1} (index {head})", own, own))
    yield Table(("head", "rows of each weight", "columns of each output"), tuple(rows))


def checks(x_batch, mha_W_query, same_query, same_key, symmetric_scores):
    product = x_batch @ mha_W_query.weight.T
    yield (
        "calling a layer computes x_batch @ layer.weight.T",
        close(mha_W_query(x_batch), product),
    )
    loop = product.new_tensor(
        [
            [
                [
                    sum(a * b for a, b in zip(token, row, strict=True))
                    for row in mha_W_query.weight.tolist()
                ]
                for token in sentence[:8]
            ]
            for sentence in x_batch.tolist()
        ]
    )
    yield "and that is a loop over features", close(product[:, :8], loop, atol=1e-4)
    yield (
        "the same seed before each layer makes their weights equal",
        equal(same_query.weight, same_key.weight),
    )
    yield (
        "and the scores symmetric",
        close(symmetric_scores, symmetric_scores.mT, atol=1e-4),
    )
