"""What is said of step 6, and checked."""

from steps.compare import close


def notes(x, similarity, inputs, follow):
    one, first = x[follow].tolist(), x[0].tolist()
    terms = [f"({a:.4f} x {b:.4f})" for a, b in zip(one, first, strict=True)][:8]
    more = " + ..." if len(one) > 8 else ""
    yield (
        f"{inputs[follow]} . {inputs[0]} = {' + '.join(terms)}{more}"
        f" = {similarity[follow, 0].item():.4f}"
    )


def checks(x, one_similarity, similarity, inputs, follow):
    loop = x.new_tensor(
        [
            sum(a * b for a, b in zip(row, x[follow].tolist(), strict=True))
            for row in x.tolist()
        ]
    )
    yield (
        f"the scores of {inputs[follow]} equal a loop that multiplies and adds",
        close(one_similarity, loop),
    )
    yield (
        f"they are row {follow} of the scores of all pairs",
        close(similarity[follow], one_similarity),
    )
    yield (
        "a . b = b . a: the scores are symmetric",
        close(similarity, similarity.T),
    )
