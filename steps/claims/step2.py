"""What is said of step 2, and checked."""

from steps.compare import equal
from steps.walk.order import Table


def notes(input_ids, target_ids, inputs, targets, follow):
    ids = [(str(i), str(t)) for i, t in zip(input_ids, target_ids, strict=True)]
    rows = [
        (str(index), inputs[index], input_id, targets[index], target_id)
        for index, (input_id, target_id) in enumerate(ids)
    ]
    yield Table(("index", "input", "id", "target", "id"), tuple(rows))
    yield f'"{inputs[follow]}" is at index {follow}; its target is "{targets[follow]}".'


def checks(token_ids, input_ids, target_ids):
    yield (
        "target i is input i + 1: the targets are shifted left by one",
        equal(target_ids[:-1], input_ids[1:]),
    )
    yield (
        "every token but the first is a target, and every token but the last an input",
        equal([*input_ids, target_ids[-1]], [token_ids[0], *target_ids]),
    )
