"""Step 1: tokenize

A sentence becomes a list of whole numbers: the ids of its pieces in GPT-2's vocabulary of
50,257. Most pieces carry the space before them.
"""

from steps import tokens
from steps.compare import equal
from steps.walk.order import Table


def step(text):
    token_ids = tokens.encode(text)
    pieces = [tokens.piece_of(text, token_id) for token_id in token_ids]
    return token_ids, pieces


def notes(token_ids, pieces):
    rows = [
        (str(index), str(token_id), tokens.shown(piece))
        for index, (token_id, piece) in enumerate(zip(token_ids, pieces, strict=True))
    ]
    yield Table(("index", "id", "piece"), tuple(rows))


def checks(text, token_ids, pieces):
    yield "decoding the ids gives the text back", equal(tokens.decode(text, token_ids), text)
    yield (
        "the pieces, put together, are the text's bytes",
        equal(b"".join(pieces), text.encode()),
    )


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
