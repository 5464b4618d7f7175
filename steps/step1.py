"""Step 1: tokenize

A sentence becomes a list of whole numbers: the ids of its pieces in GPT-2's vocabulary
of 50,257.

What is said of it, and checked: steps/claims/step1.py
"""

from steps import tokens


def step(text):
    token_ids = tokens.encode(text)
    pieces = [tokens.piece_of(text, token_id) for token_id in token_ids]
    return locals()


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
