"""What is said of step 4, and checked."""

from steps.compare import equal

SHOWN = ("token_embeddings",)


def look(batch_ids, inputs, follow):
    return (
        f'"{inputs[follow]}": its id, {batch_ids[0, follow]}, picks the row of that '
        "number, and the row is its vector."
    )


def notes(token_embedding_layer, token_embeddings, batch_ids):
    rows, width = token_embedding_layer.weight.shape
    yield (
        "token_embeddings",
        f"{tuple(batch_ids.shape)} -> {tuple(token_embeddings.shape)}: each id becomes "
        f"its row, {width} of {rows * width:,} numbers, all drawn at random.",
    )


def checks(token_embedding_layer, token_embeddings, batch_ids, inputs, follow):
    row = token_embedding_layer.weight[batch_ids[0, follow]]
    yield (
        f'the vector of "{inputs[follow]}" is row {batch_ids[0, follow]} of the table',
        equal(token_embeddings[0, follow], row),
    )
