"""Small pieces of English for the notes of the steps."""

from collections.abc import Sequence


def count(number: int, noun: str) -> str:
    """A number and its noun.

    >>> count(1, "head"), count(2, "head")
    ('1 head', '2 heads')
    """
    return f"{number} {noun}" + ("" if number == 1 else "s")


def listed(words: Sequence[str], most: int = 12) -> str:
    """Words in a row, the middle left out where there are more than `most`.

    >>> listed(["The", "river", "itself"])
    'The, river and itself'
    """
    if len(words) == 1:
        return words[0]
    head, last = list(words[:-1]), words[-1]
    if len(head) >= most:
        head = [*head[: most // 2], "...", *head[-(most // 2) :]]
    return f"{', '.join(head)} and {last}"
