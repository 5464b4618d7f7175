"""Step 2: shift

The model reads the inputs and learns to name the targets: the same ids, one place later.
"""

from steps import tokens
from steps.compare import equal
from steps.walk.order import Table


def step(token_ids, pieces):
    input_ids, target_ids = token_ids[:-1], token_ids[1:]
    inputs = [tokens.label(piece) for piece in pieces[:-1]]
    targets = [tokens.label(piece) for piece in pieces[1:]]
    return input_ids, target_ids, inputs, targets


def notes(input_ids, target_ids, inputs, targets, follow):
    rows = zip(map(str, range(len(inputs))), inputs, map(str, input_ids), targets, map(str, target_ids))
    yield Table(("index", "input", "id", "target", "id"), tuple(rows))
    yield f"{inputs[follow]} is at index {follow}; its target is {targets[follow]}."


def checks(token_ids, input_ids, target_ids):
    yield (
        "target i is input i + 1: the targets are shifted left by one",
        equal(target_ids[:-1], input_ids[1:]),
    )
    yield (
        "only the first token is never a target, only the last is never an input",
        equal([*input_ids, target_ids[-1]], [token_ids[0], *target_ids]),
    )


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
