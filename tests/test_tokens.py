"""The embedded token table against GPT-2's full vocabulary."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from program import ROOT, main, one_step

from steps import tokens

TABLE = ROOT / "data" / "gpt2_tokens.tiktoken"
WORDS = (ROOT / "data" / "words.txt").read_text(encoding="ascii").split()


@pytest.fixture(scope="module")
def gpt2() -> tiktoken.Encoding:
    return tiktoken.get_encoding("gpt2")


@pytest.fixture(scope="module")
def make_table() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "make_table", ROOT / "data" / "make_table.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def from_table(text: str) -> bool:
    """Whether the text's ids come from the embedded table."""
    return tokens.encoding(text).name != "gpt2"


def test_the_table_is_made_from_the_full_vocabulary(
    gpt2: tiktoken.Encoding, make_table: ModuleType
) -> None:
    assert make_table.table(gpt2, WORDS).encode() == TABLE.read_bytes()


def test_the_default_sentence_is_in_the_table() -> None:
    text = "The river bank was muddy"
    assert from_table(text)
    assert tokens.encode(text) == [464, 7850, 3331, 373, 39085]


# Texts near the table's: its words, other words, marks, numbers, all kinds of space.
pieces = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from(WORDS).map(str.capitalize),
    st.sampled_from(
        [" ", "  ", "\n", "\t", "\r\n", ".", ",", "'s", "'", "'ll", "-", "!?"]
    ),
    st.sampled_from(
        ["\x1c", "\x1f", "\x00", "\x85", "\xa0", "é", "<|endoftext|>", "_", "٣"]
    ),
    st.integers(0, 3000).map(str),
    st.text(max_size=3),
)
texts = st.lists(pieces, max_size=12).flatmap(
    lambda parts: st.sampled_from([" ".join(parts), "".join(parts)])
)


@settings(max_examples=600, deadline=None)
@given(text=texts)
def test_ids_are_gpt2s_whichever_vocabulary_gives_them(
    gpt2: tiktoken.Encoding, text: str
) -> None:
    expected = gpt2.encode_ordinary(text)
    assert tokens.encode(text) == expected
    assert tokens.decode(text, expected) == text
    pieces = [tokens.piece_of(text, token_id) for token_id in expected]
    assert b"".join(pieces) == text.encode()


@settings(max_examples=100, deadline=None)
@given(words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=8))
def test_the_tables_own_words_are_never_looked_up_elsewhere(
    gpt2: tiktoken.Encoding, words: list[str]
) -> None:
    text = " ".join(words)
    assert tokens.encode(text) == gpt2.encode_ordinary(text)
    if all(len(gpt2.encode_ordinary(" " + word)) == 1 for word in words[1:]):
        first = len(gpt2.encode_ordinary(words[0])) == 1
        assert from_table(text) == first


@pytest.mark.parametrize(
    "text", ["xylophone", "the Zyzzyva", "ça va", "银行", "🙂", "\x85"]
)
def test_the_table_is_not_used_for_what_it_does_not_cover(text: str) -> None:
    assert not from_table(text)


def test_special_tokens_are_ordinary_text(gpt2: tiktoken.Encoding) -> None:
    text = "the end<|endoftext|>of the river"
    assert tokens.encode(text) == gpt2.encode_ordinary(text)
    assert gpt2.eot_token not in tokens.encode(text)


def test_pieces_that_are_not_characters_are_shown_by_their_bytes() -> None:
    out = one_step(1, "--text", "The bank 🙃🙃 was").out
    assert r"\xf0\x9f" in out
    assert "\N{REPLACEMENT CHARACTER}" not in out
    assert tokens.label(b"\xf0\x9f") == r"\xf0\x9f"
    assert tokens.label(b" river") == "river"
    assert tokens.label(b"\n") == r"\n"
    assert tokens.label("é".encode()) == "é"


@pytest.mark.parametrize(
    "text",
    [
        "שלום עולם, הנהר",
        "河岸很泥泞",
        "🙂🙃 👩\u200d👩\u200d👧 family",
        "one\ntwo\tthree\r\nfour",
        "  spaces   everywhere  ",
        "supercalifragilisticexpialidocious " + "x" * 300,
        "e\u0301 ﬁ \u202ertl\u202c",
        "it's \x1b[31mred\x1b[0m",
    ],
)
def test_any_text_is_walked(text: str) -> None:
    ran = main("--text", text)
    assert (ran.code, ran.err) == (0, "")
    assert "\x1b" not in ran.out
    assert "\r" not in ran.out
    assert "\t" not in ran.out


LINES = TABLE.read_bytes().splitlines(keepends=True)
EXCHANGED = [
    line.replace(b" 7850", b" ?").replace(b" 3331", b" 7850").replace(b" ?", b" 3331")
    for line in LINES
]
DAMAGED = {
    "gone": None,
    "empty": b"",
    "cut": b"".join(LINES)[:9000],
    "no text": bytes(range(256)) * 40,
    "no numbers": b"".join(line.replace(b" ", b" x") for line in LINES),
    "an id twice": b"".join(LINES) + LINES[0],
    "an id too large": b"".join(LINES).replace(b" 7850\n", b" 78500000000000000000\n"),
    "two ids exchanged": b"".join(EXCHANGED),
    "a folder": "a folder",
}


@pytest.fixture(params=DAMAGED)
def damaged(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A copy of the project's table in this state, in the table's place."""
    table, state = tmp_path / TABLE.name, DAMAGED[request.param]
    if isinstance(state, bytes):
        assert state != TABLE.read_bytes()
        table.write_bytes(state)
    elif state:
        table.mkdir()
    monkeypatch.setattr(tokens, "TABLE", table)
    tokens.encoding.cache_clear()
    yield table
    tokens.encoding.cache_clear()


def test_a_damaged_table_is_named_before_anything_is_printed(
    damaged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(name: str) -> None:
        raise ConnectionError(name)

    monkeypatch.setattr(tiktoken, "get_encoding", offline)
    for ran in (main(), main("--json"), one_step(1), one_step(15)):
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert damaged.name in ran.err
        assert "git checkout" in ran.err
    ran = main("--text", "Die Bank am Fluß")
    assert "TIKTOKEN_CACHE_DIR" in ran.err  # no table has that


@pytest.mark.usefixtures("damaged")
def test_a_damaged_table_does_not_stand_in_the_way_of_the_full_vocabulary() -> None:
    for text in ("The river bank was muddy", "the zyzzyva bank", "Die Bank am Fluß"):
        ran = one_step(1, "--text", text)
        assert (ran.code, ran.err) == (0, "")
        assert not from_table(text)
    assert tokens.encode("The river bank was muddy") == [464, 7850, 3331, 373, 39085]


def test_the_table_with_windows_line_ends_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = tokens.ranks()
    table = tmp_path / "table"
    table.write_bytes(TABLE.read_bytes().replace(b"\n", b"\r\n"))
    monkeypatch.setattr(tokens, "TABLE", table)
    assert tokens.ranks() == right
