"""What is said of a step, at every size: true, in English, and within the width."""

import random
import re
from collections.abc import Sequence

import pytest
from program import ROOT
from wcwidth import wcswidth

from steps.walk import command
from steps.walk.order import Walk
from steps.walk.text import Text

STEPS = list(range(1, 14))
WORDS = (ROOT / "data" / "words.txt").read_text(encoding="utf-8").split()
LONG = " ".join(random.Random(5).choice(WORDS) for _ in range(90))
TEXTS = {
    "article": "The river bank was muddy",
    "two tokens": "The river",
    "three tokens": "The river bank",
    "one word again": "the the cat the the",
    "letters": "a b c d e",
    "long": LONG,
    "no words": "河岸很泥泞",
    "controls": 'one\ntwo\t"three" \\',
}
# d_in, heads, head_dim
SIZES = [(4, 2, 3), (1, 1, 1), (8, 3, 5), (4, 12, 1), (64, 1, 64)]
NOUN = "token|head|row|number|weight|place|input|lesson|sentence|group|element|score"
# "1 tokens", "2 token"
ODD = re.compile(rf"(?<![\d.])(?:1 (?:{NOUN})s\b|(?!1\b)\d+ (?:{NOUN})\b)")


def sentences(numbers: Sequence[int], *flags: str) -> list[tuple[int, str]]:
    """The lines to look at, the notes and the checks' claims, each with its step."""
    given, _ = command.settings(command.parser("walk", "").parse_args(flags))
    said = []
    for block in Walk(given).blocks(list(numbers)):
        number = block.title.number
        assert [c for c in block.checks if not c.holds] == []
        said += [(number, block.look), *((number, c.claim) for c in block.checks)]
        said += [(number, n.says) for n in block.notes if isinstance(n.says, str)]
        said += [(number, turn.why) for turn in block.wrong_turns]
        for width, everything in ((80, False), (80, True), (120, False)):
            text = Text(width=width, everything=everything).block(block)
            wide = [s for s in text.split("\n") if not 0 <= wcswidth(s) <= width]
            assert wide == []
        look = text_of_look(Text(width=100).block(block))
        assert len(look) <= 2
    return said


def text_of_look(block: str) -> list[str]:
    after = block[block.index("\nLook at:") + 1 :]
    return after[: after.index("\n\n")].split("\n")


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("seed", ["123", "7"])
def test_every_sentence_at_every_size(text: str, seed: str) -> None:
    for d_in, heads, head_dim in SIZES:
        sizes = [f"--d-in={d_in}", f"--heads={heads}", f"--head-dim={head_dim}"]
        for number, says in sentences(
            STEPS, "--text", TEXTS[text], "--seed", seed, *sizes
        ):
            assert ODD.findall(says) == [], (number, says)
            assert "-0.0000" not in says, (number, says)
            assert says == " ".join(says.split()), (number, says)
            assert says[-1:] != ",", (number, says)
