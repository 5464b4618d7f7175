"""What is said of step 4, and checked."""

from steps.compare import equal
from steps.walk.order import Table
from steps.walk.text import number

MOST = 12  # rows shown


def notes(token_embedding_layer, input_ids, inputs):
    weight = token_embedding_layer.weight
    rows = []
    for token, at in list(zip(inputs, input_ids, strict=True))[:MOST]:
        values = [f"{number(value):>7}" for value in weight[at, :6].tolist()]
        more = ["..."] if weight.shape[1] > 6 else []
        rows.append((token, str(at), "  ".join([*values, *more])))
    first = f", the first {MOST}" if len(inputs) > MOST else ""
    yield f"The rows that are looked up{first}:"
    yield Table(("token", "id", "token_embedding_layer.weight[id]"), tuple(rows))


def checks(token_embedding_layer, token_embeddings, batch_ids, inputs, follow):
    row = token_embedding_layer.weight[batch_ids[0, follow]]
    yield (
        f"the vector of {inputs[follow]} is row {batch_ids[0, follow]} of the table",
        equal(token_embeddings[0, follow], row),
    )
