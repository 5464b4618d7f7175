"""Make gpt2_tokens.tiktoken again from words.txt and GPT-2's full vocabulary.

    python data/make_table.py

The full vocabulary is what `tiktoken.get_encoding("gpt2")` loads. For each word the
table takes those of "word", " word", "Word" and " Word" that are one token; it takes
all 256 single bytes too.
"""

import base64
from hashlib import sha256
from pathlib import Path

import tiktoken

DATA = Path(__file__).parent


def table(full: tiktoken.Encoding, words: list[str]) -> str:
    """The table's text: a piece a line, base64 and id, by id."""
    ranks = full._mergeable_ranks
    wanted = {bytes([byte]) for byte in range(256)}
    for word in words:
        for form in (word, word.capitalize()):
            wanted |= {form.encode(), b" " + form.encode()}
    found = sorted((ranks[piece], piece) for piece in wanted if piece in ranks)
    return "".join(
        f"{base64.b64encode(piece).decode()} {rank}\n" for rank, piece in found
    )


if __name__ == "__main__":
    words = (DATA / "words.txt").read_text(encoding="ascii").split()
    text = table(tiktoken.get_encoding("gpt2"), words)
    (DATA / "gpt2_tokens.tiktoken").write_text(text, encoding="ascii", newline="\n")
    print(f"{text.count(chr(10))} pieces written; in steps/tokens.py, to be read:")
    print(f'DIGEST = "{sha256(text.encode()).hexdigest()}"')
