"""What is said of step 3, and checked."""

from steps.compare import equal
from steps.walk.order import Table


def notes(inputs, targets, T):
    rows = [(" ".join(inputs[: end + 1]), "->", targets[end]) for end in range(T)]
    yield Table(("prefix", "", "predicts"), tuple(rows))
    if T > 2:
        yield (
            "A text longer than the model can read is cut into windows of inputs, "
            "and the stride is the step from one window to the next. With windows of "
            "2:"
        )
        rows = []
        for stride in (1, 2):
            windows = [" ".join(inputs[at : at + 2]) for at in range(0, T - 1, stride)]
            rows.append(
                (
                    str(stride),
                    " / ".join(windows[:6]) + (" / ..." if windows[6:] else ""),
                )
            )
        yield Table(("stride", "windows"), tuple(rows))


def checks(input_ids, batch_ids):
    yield (
        "sentence 0 of the batch is the list of ids",
        equal(batch_ids[0].tolist(), input_ids),
    )
