"""What is said of step 1, and checked."""

from steps import tokens
from steps.compare import equal
from steps.layout import Table


def look(token_ids, pieces, follow):
    piece = pieces[follow]
    spaced = ", its space included" if piece.startswith(b" ") else ""
    return (
        f'"{tokens.label(piece)}": piece {follow}, counted from 0{spaced}. From here '
        f"on it is a number, {token_ids[follow]}."
    )


def notes(text, token_ids, pieces):
    rows = [
        (str(index), str(token_id), tokens.shown(piece))
        for index, (token_id, piece) in enumerate(zip(token_ids, pieces, strict=True))
    ]
    yield "pieces", Table(("index", "id", "piece"), tuple(rows))
    spaced = sum(piece.startswith(b" ") for piece in pieces)
    source = "GPT-2's full vocabulary, which tiktoken downloads once."
    if tokens.encoding(text).name == "gpt2_table":
        source = "the small table in data/, no download."
    yield (
        "pieces",
        f"Pieces that begin with a space: {spaced} of {len(pieces)}. Ids from {source}",
    )


def checks(text, token_ids, pieces):
    yield (
        "decoding the ids gives the text back",
        equal(tokens.decode(text, token_ids), text),
    )
    yield (
        "the pieces, put together, are the text's bytes",
        equal(b"".join(pieces), text.encode()),
    )
