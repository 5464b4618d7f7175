"""GPT-2's tokens: from a small table in `data/`, or from the full vocabulary.

The table holds whole pieces, such as " river", with the ids GPT-2 gives them. A text
all of whose pieces are in it gets the same ids as from the full vocabulary; any other
text needs the full vocabulary, which tiktoken downloads once.

    >>> encode("The river bank was muddy")
    [464, 7850, 3331, 373, 39085]
"""

import base64
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from steps.errors import UserError

if TYPE_CHECKING:
    import tiktoken

TABLE = Path(__file__).parent.parent / "data" / "gpt2_tokens.tiktoken"

# How GPT-2 cuts a text into pieces, for ASCII text, where `re` is enough: a word, a
# number or other marks, each with the space before it, or white space alone.
PIECE = re.compile(
    r"'(?:[sdmt]|ll|ve|re)| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+",
    re.ASCII,
)


def pieces(text: str) -> list[bytes] | None:
    """The text cut as GPT-2 cuts it, before any merging; None for non-ASCII text."""
    return [piece.encode() for piece in PIECE.findall(text)] if text.isascii() else None


def ranks() -> dict[bytes, int]:
    """The embedded table, bytes to id: one piece a line, base64 and id."""
    lines = TABLE.read_text(encoding="ascii").splitlines()
    pairs = (line.split() for line in lines)
    return {base64.b64decode(piece): int(rank) for piece, rank in pairs}


def encode(text: str) -> list[int]:
    """GPT-2's ids for the text; special tokens are read as ordinary text.

    Raises UserError when the text needs the full vocabulary and it cannot be had.
    """
    return encoding(text).encode_ordinary(text)


def decode(text: str, ids: list[int]) -> str:
    """The text that the ids stand for; `text` tells which vocabulary they are from."""
    return encoding(text).decode(ids)


def piece_of(text: str, token_id: int) -> bytes:
    """The bytes of one token; they need not be whole characters."""
    return encoding(text).decode_single_token_bytes(token_id)


def label(piece: bytes) -> str:
    r"""A piece as a row label: no space around it, bytes as \x.. where not characters.

    >>> label(b" river"), label(b"\xf0\x9f"), label(b"\n")
    ('river', '\\xf0\\x9f', '\\n')
    """
    try:
        text = piece.decode()
    except UnicodeDecodeError:
        return "".join(f"\\x{byte:02x}" for byte in piece)
    bare = text.strip(" ") or "space"
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in bare
    )


@cache
def encoding(text: str) -> "tiktoken.Encoding":
    """The vocabulary that is sure to give the text GPT-2's ids."""
    try:
        import tiktoken
    except ModuleNotFoundError as missing:
        if missing.name != "tiktoken":
            raise
        raise UserError(
            "tiktoken is not installed: pip install -r requirements.txt"
        ) from None
    table, parts = ranks(), pieces(text)
    if parts is not None and all(part in table for part in parts):
        from tiktoken_ext.openai_public import r50k_pat_str

        return tiktoken.Encoding(
            "gpt2_table", pat_str=r50k_pat_str, mergeable_ranks=table, special_tokens={}
        )
    try:
        return tiktoken.get_encoding("gpt2")
    except Exception as error:  # whatever the download or the cache raises
        unknown = [part.decode() for part in parts or [] if part not in table]
        what = "characters outside ASCII are"
        if unknown:
            what = f"{unknown[0].strip() or unknown[0]!r} is"
        raise UserError(
            f"--text: {what} not in the small token table, and GPT-2's full vocabulary "
            f"could not be loaded ({type(error).__name__}); set TIKTOKEN_CACHE_DIR to "
            "a folder where tiktoken.get_encoding('gpt2') has been run with a network"
        ) from error


def shown(piece: bytes) -> str:
    """A piece in quotes, its space included."""
    try:
        text = piece.decode()
    except UnicodeDecodeError:
        return label(piece)
    return '"' + "".join(c if c.isprintable() else repr(c)[1:-1] for c in text) + '"'
