"""The small pieces of English: their docstrings' examples."""

import doctest

from steps import words


def test_the_examples_hold() -> None:
    failed, tried = doctest.testmod(words)
    assert tried >= 4
    assert failed == 0
