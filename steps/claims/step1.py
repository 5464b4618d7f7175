"""What is said of step 1, and checked."""

from steps import tokens
from steps.compare import equal
from steps.walk.order import Table


def notes(token_ids, pieces):
    rows = [
        (str(index), str(token_id), tokens.shown(piece))
        for index, (token_id, piece) in enumerate(zip(token_ids, pieces, strict=True))
    ]
    spaced = sum(piece.startswith(b" ") for piece in pieces)
    yield f"{spaced} of {len(pieces)} pieces carry the space before them."
    yield Table(("index", "id", "piece"), tuple(rows))


def checks(text, token_ids, pieces):
    yield (
        "decoding the ids gives the text back",
        equal(tokens.decode(text, token_ids), text),
    )
    yield (
        "the pieces, put together, are the text's bytes",
        equal(b"".join(pieces), text.encode()),
    )
