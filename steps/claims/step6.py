"""What is said of step 6, and checked."""

from steps.compare import close
from steps.words import products, token

SHOWN = ("similarity",)


def look(similarity, inputs, follow, T):
    scores = similarity[follow]
    own, best = scores[follow].item(), int(scores.argmax())
    ranked = (
        "the only one there is"
        if T == 1
        else "the largest of its row"
        if own == scores[best].item()
        else f"less than {scores[best].item():.4f} with {token(inputs, best)}"
    )
    return (
        f"the row of {token(inputs, follow)}. With itself it scores {own:.4f}, "
        f"{ranked}."
    )


def notes(x, one_similarity, similarity, inputs, follow):
    terms = products(x[follow].tolist(), x[0].tolist())
    yield "similarity", f"{one_similarity[0].item():.4f} = {terms}"
    longest = int(x.norm(dim=-1).argmax())
    yield (
        "similarity",
        f"Length counts, not likeness alone: {token(inputs, longest)}, the longest at "
        f"{x[longest].norm():.4f}, scores {similarity[longest, longest].item():.4f} "
        "with itself.",
    )


def checks(x, one_similarity, similarity, inputs, follow):
    loop = x.new_tensor(
        [
            sum(a * b for a, b in zip(row, x[follow].tolist(), strict=True))
            for row in x.tolist()
        ]
    )
    yield (
        f'the scores of "{inputs[follow]}" equal a loop that multiplies and adds',
        close(one_similarity, loop),
    )
    yield (
        f'the scores of "{inputs[follow]}" are row {follow} of the scores of all pairs',
        close(similarity[follow], one_similarity),
    )
    yield (
        "a . b = b . a: the scores of all pairs are symmetric",
        close(similarity, similarity.T),
    )
