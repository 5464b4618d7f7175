"""What is said of step 14, and checked."""

from steps.compare import close, equal
from steps.words import count, span

INSTEAD = {"untransposed": "packed"}


def look(d_in, H, D):
    verb = "is" if D == 1 else "are"
    whose = [
        f"{span('row', h * D, D)} {verb} head {h + 1}'s"
        for h in dict.fromkeys((0, H - 1))
    ]
    return (
        f"the rows of a weight: {' and '.join(whose)}, and every row reads the same "
        f"{count(d_in, 'feature')} of a token."
    )


def notes(x_batch, same_query, symmetric_scores, inputs, follow, d_in, H, D):
    yield (
        "mha_W_query",
        "Calling a layer computes x_batch @ layer.weight.T, "
        f"{tuple(x_batch.shape)} @ ({d_in}, {H * D}).",
    )
    if len(inputs) > 1:
        other = follow - 1 if follow else 1
        one, two = inputs[follow], inputs[other]
        to, back = (
            symmetric_scores[0, follow, other],
            symmetric_scores[0, other, follow],
        )
        yield (
            "wrong_reseeded",
            f'"{one}" scores {to:.4f} with "{two}", and "{two}" {back:.4f} with '
            f'"{one}".',
        )
    if d_in == H * D:
        yield "wrong_transpose", f"Both widths are {d_in} here: no error is raised."


def checks(x_batch, mha_W_query, same_query, same_key, symmetric_scores):
    product = x_batch @ mha_W_query.weight.T
    yield (
        "calling a layer computes x_batch @ layer.weight.T",
        close(mha_W_query(x_batch), product),
    )
    weight = mha_W_query.weight.tolist()
    loop = [
        [
            [sum(a * b for a, b in zip(token, row, strict=True)) for row in weight]
            for token in sentence[:8]
        ]
        for sentence in x_batch.tolist()
    ]
    yield (
        "a layer's output equals a plain loop over features",
        close(product[:, :8], product.new_tensor(loop), atol=1e-4),
    )
    yield (
        "the same seed before each layer makes their weights equal",
        equal(same_query.weight, same_key.weight),
    )
    yield (
        "one matrix for queries and keys makes the scores symmetric",
        close(symmetric_scores, symmetric_scores.mT, atol=1e-4),
    )
