"""What is said of step 5, and checked."""

from steps.compare import equal

SHOWN = ("x_batch",)


def look(token_embeddings, position_embeddings, x_batch, inputs, follow):
    token = token_embeddings[0, follow, 0].item()
    position = position_embeddings[follow, 0].item()
    return (
        f'"{inputs[follow]}", its first number: {token:.4f} from the token and '
        f"{position:.4f} from position {follow} make "
        f"{x_batch[0, follow, 0].item():.4f}."
    )


def notes(token_embeddings, position_embeddings, x_batch):
    shapes = [tuple(t.shape) for t in (token_embeddings, position_embeddings, x_batch)]
    yield (
        "x_batch",
        f"{shapes[0]} + {shapes[1]} -> {shapes[2]}: every sentence of a batch gets "
        "the same positions.",
    )


def checks(token_embeddings, position_embeddings, x_batch, inputs, follow):
    yield (
        f'x_batch holds, for "{inputs[follow]}", its token\'s row plus row {follow} of '
        "the positions",
        equal(
            x_batch[0, follow],
            token_embeddings[0, follow] + position_embeddings[follow],
        ),
    )
