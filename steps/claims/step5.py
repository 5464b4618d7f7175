"""What is said of step 5, and checked."""

from steps.compare import equal


def checks(token_embeddings, position_embeddings, x_batch, inputs, follow):
    yield (
        f"x_batch holds, for {inputs[follow]}, its token's row plus row {follow} of "
        "the positions",
        equal(
            x_batch[0, follow],
            token_embeddings[0, follow] + position_embeddings[follow],
        ),
    )
