"""Small pieces of English for the notes of the steps."""

from collections.abc import Sequence

from steps.layout import number, some

MOST = 12


def count(number: int, noun: str) -> str:
    """A number and its noun.

    >>> count(1, "head"), count(2, "head"), count(2, "process")
    ('1 head', '2 heads', '2 processes')
    """
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{number} {noun if number == 1 else plural}"


def span(noun: str, first: int, size: int) -> str:
    """A noun and its numbers, `size` of them from `first` on; "" for numbers alone.

    >>> span("row", 3, 3), span("row", 5, 1), span("", 0, 2)
    ('rows 3 to 5', 'row 5', '0 to 1')
    """
    numbers = str(first) if size == 1 else f"{first} to {first + size - 1}"
    return f"{noun}{'s' * (size != 1)} {numbers}" if noun else numbers


def times(*sizes: int) -> str:
    """Sizes as a product.

    >>> times(1, 4, 6)
    '1 x 4 x 6'
    """
    return " x ".join(map(str, sizes))


def token(inputs: Sequence[str], index: int) -> str:
    """An input token in quotes, with its index where it occurs more than once.

    >>> token(["the", "cat", "the"], 1), token(["the", "cat", "the"], 2)
    ('"cat"', '"the" (index 2)')
    """
    again = f" (index {index})" if inputs.count(inputs[index]) > 1 else ""
    return f'"{inputs[index]}"{again}'


def row(values: Sequence[float], keep: int | None = None) -> str:
    """Numbers as a row, the middle left out where there are more than seven.

    keep: an index that stays.

    >>> row([0.5, -1.0]), row([0.1] * 9)[-12:]
    ('(0.5000, -1.0000)', '..., 0.1000)')
    """
    shown = some(len(values), 7, keep)
    return f"({', '.join('...' if i is None else number(values[i]) for i in shown)})"


def products(one: Sequence[float], other: Sequence[float]) -> str:
    """The terms of a dot product, the first eight of them.

    >>> products([1.0, 2.0], [0.5, -1.0])
    '(1.0000 x 0.5000) + (2.0000 x -1.0000)'
    """
    terms = [f"({a:.4f} x {b:.4f})" for a, b in zip(one, other, strict=True)]
    return " + ".join(terms[:8]) + (" + ..." if terms[8:] else "")


def listed(words: Sequence[str]) -> str:
    """Words in a row, the middle left out where there are more than MOST.

    >>> listed(["The", "river", "itself"])
    'The, river and itself'
    >>> listed("abcdefghijklm")
    'a, b, c, d, e, f, ..., h, i, j, k, l and m'
    """
    if len(words) == 1:
        return words[0]
    head, last = list(words[:-1]), words[-1]
    if len(words) > MOST:
        head = [*head[: MOST // 2], "...", *head[-(MOST // 2 - 1) :]]
    return f"{', '.join(head)} and {last}"
