"""What is said of step 3, and checked."""

from steps.compare import equal
from steps.layout import Table, squeeze
from steps.words import count, listed

SHOWN = ("batch_ids",)


def look(inputs, targets, follow, T):
    prefix = squeeze(" ".join(inputs[: follow + 1]), 40)
    return (
        f'{count(T, "input")}, {count(T, "lesson")}. That of "{inputs[follow]}": after '
        f'"{prefix}" comes "{targets[follow]}".'
    )


def notes(inputs, targets, B, T):
    yield (
        "batch_ids",
        f"{(T,)} -> {(B, T)}: {count(B, 'sentence')} of {count(T, 'token')}. The axis "
        "is new, the ids are where they were.",
    )
    rows = [(" ".join(inputs[: end + 1]), "->", targets[end]) for end in range(T)]
    yield "", Table(("prefix", "", "predicts"), tuple(rows))
    if T > 2:
        one, two = (
            [f'"{" ".join(inputs[at : at + 2])}"' for at in range(0, T - 1, stride)]
            for stride in (1, 2)
        )
        yield (
            "",
            "A long text is read in windows; the stride is the step from one to the "
            f"next. The first windows of 2 are {listed(one[:2])} at stride 1, "
            f"{listed(two[:2])} at stride 2.",
        )


def checks(input_ids, batch_ids):
    yield (
        "sentence 0 of the batch is the list of ids",
        equal(batch_ids[0].tolist(), input_ids),
    )
