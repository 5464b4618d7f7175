"""Step 3: next-token pairs

One sentence holds as many lessons as it has inputs: each prefix, and the token it must
predict. Layers expect a batch of sentences, so the ids get a batch axis in front.
"""

from steps.compare import equal
from steps.pytorch import torch
from steps.walk.order import Table


def step(input_ids):
    token_ids_tensor = torch.tensor(input_ids)  # (T)
    batch_ids = token_ids_tensor.unsqueeze(0)  # (B, T)
    return token_ids_tensor, batch_ids


def notes(inputs, targets, T):
    rows = [(" ".join(inputs[: end + 1]), "->", targets[end]) for end in range(T)]
    yield Table(("prefix", "", "predicts"), tuple(rows))
    if T > 2:
        yield (
            "A text longer than the model can read is cut into windows of inputs, and the stride is "
            "the step from one window to the next. With windows of 2:"
        )
        rows = []
        for stride in (1, 2):
            windows = [" ".join(inputs[at : at + 2]) for at in range(0, T - 1, stride)]
            rows.append((str(stride), " / ".join(windows[:6]) + (" / ..." if windows[6:] else "")))
        yield Table(("stride", "windows"), tuple(rows))


def checks(token_ids_tensor, batch_ids):
    yield "sentence 0 of the batch is the list of ids", equal(batch_ids[0], token_ids_tensor)


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
