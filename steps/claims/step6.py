"""What is said of step 6, and checked."""

from steps.compare import close
from steps.words import products


def notes(x, similarity, inputs, follow):
    terms = products(x[follow].tolist(), x[0].tolist())
    score = similarity[follow, 0].item()
    yield f"{inputs[follow]} . {inputs[0]} = {terms} = {score:.4f}"
    longest = int(x.norm(dim=-1).argmax())
    yield (
        "A score grows with the length of both vectors as well as with their likeness: "
        f"that of {inputs[longest]} is the longest here, {x[longest].norm():.4f}."
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
