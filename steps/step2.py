"""Step 2: shift

The model reads the inputs and learns to name the targets: the same ids, one place
later.

What is said of it, and checked: steps/claims/step2.py
"""

from steps import tokens


def step(token_ids, pieces):
    input_ids, target_ids = token_ids[:-1], token_ids[1:]
    inputs = [tokens.label(piece) for piece in pieces[:-1]]
    targets = [tokens.label(piece) for piece in pieces[1:]]
    return locals()


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
