"""What is said of step 4, and checked."""

from steps.compare import equal


def checks(token_embedding_layer, token_embeddings, batch_ids, inputs, follow):
    row = token_embedding_layer.weight[batch_ids[0, follow]]
    yield (
        f"the vector of {inputs[follow]} is row {batch_ids[0, follow]} of the table",
        equal(token_embeddings[0, follow], row),
    )
