"""What is said of step 2, and checked."""

from steps.compare import equal
from steps.layout import Table


def look(inputs, targets, follow, T):
    target = (
        f"the input at index {follow + 1}"
        if follow + 1 < T
        else "the text's last token"
    )
    return (
        f'index {follow}, where "{inputs[follow]}" is the input. Its target is '
        f'"{targets[follow]}", {target}.'
    )


def notes(input_ids, target_ids, inputs, targets):
    ids = [(str(i), str(t)) for i, t in zip(input_ids, target_ids, strict=True)]
    rows = [
        (str(index), inputs[index], input_id, targets[index], target_id)
        for index, (input_id, target_id) in enumerate(ids)
    ]
    yield "targets", Table(("index", "input", "id", "target", "id"), tuple(rows))
    yield (
        "targets",
        "With x for the inputs and y for the targets, y[i] is x[i + 1]; the last "
        "target is never read.",
    )


def checks(token_ids, input_ids, target_ids):
    yield (
        "target i is input i + 1: the targets are shifted left by one",
        equal(target_ids[:-1], input_ids[1:]),
    )
    yield (
        "every token but the first is a target, and every token but the last an input",
        equal([*input_ids, target_ids[-1]], [token_ids[0], *target_ids]),
    )
