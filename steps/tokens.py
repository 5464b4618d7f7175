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
from hashlib import sha256
from typing import TYPE_CHECKING

from steps.errors import ROOT, UserError, lost, not_installed

if TYPE_CHECKING:
    import tiktoken

TABLE = ROOT / "data" / "gpt2_tokens.tiktoken"
# SHA-256 of the table; data/make_table.py prints it. An exchanged id changes numbers
# that no other check could call wrong.
DIGEST = "dd08e5e03cf0a69dbdb56d5a2105da4baf7dd6c2ed573aa1ed4999c8461eff83"

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
    """The embedded table, bytes to id: one piece a line, base64 and id.

    Raises UserError where the file is missing or not as it was published.
    """
    try:
        table = TABLE.read_bytes().replace(b"\r\n", b"\n")  # as git has it on Windows
    except OSError as error:
        raise lost(TABLE, f"cannot be read ({error.strerror})") from None
    if sha256(table).hexdigest() != DIGEST:
        raise lost(TABLE, "is damaged")
    pairs = (line.split() for line in table.splitlines())
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
        from tiktoken import Encoding, get_encoding
        from tiktoken_ext.openai_public import r50k_pat_str
    except (ImportError, OSError) as error:
        raise not_installed("tiktoken", error) from None
    table: dict[bytes, int] = {}
    damage: UserError | None = None
    try:
        table = ranks()
    except UserError as error:  # the full vocabulary does without it
        damage = error
    parts = pieces(text)
    if damage is None and parts is not None and all(part in table for part in parts):
        return Encoding(
            "gpt2_table", pat_str=r50k_pat_str, mergeable_ranks=table, special_tokens={}
        )
    try:
        return get_encoding("gpt2")
    except ImportError as error:  # of what tiktoken needs to download
        raise not_installed("tiktoken", error) from None
    except Exception as error:  # whatever the download or the cache raises
        if damage is not None and parts is not None:
            raise damage from None
        raise UserError(
            f"--text: {beyond_the_table(parts, table)} not in the small token table, "
            "and GPT-2's full vocabulary could not be loaded "
            f"({type(error).__name__}); set TIKTOKEN_CACHE_DIR to a folder where "
            "tiktoken.get_encoding('gpt2') has been run with a network"
        ) from error


def beyond_the_table(parts: list[bytes] | None, table: dict[bytes, int]) -> str:
    """What of a text, cut into these parts, is not in the table."""
    if parts is None:
        return "characters outside ASCII are"
    unknown = next(part.decode() for part in parts if part not in table)
    return f"{unknown.strip() or unknown!r} is"


def shown(piece: bytes) -> str:
    """A piece in quotes, its space included."""
    try:
        text = piece.decode()
    except UnicodeDecodeError:
        return label(piece)
    return '"' + "".join(c if c.isprintable() else repr(c)[1:-1] for c in text) + '"'
