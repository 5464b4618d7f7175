"""What is said of step 13, and checked."""

from steps.compare import close
from steps.pytorch import torch
from steps.words import count, listed

SHOWN = ("causal_contexts",)
INSTEAD = {"unsliced": "scores"}


def look(T, context_length):
    return (
        f"the mask, {(context_length, context_length)}. Its corner {(T, T)} serves "
        f"{count(T, 'token')}, and the module any text of up to {context_length}."
    )


def notes(causal_attention):
    weights = listed([name for name, _ in causal_attention.named_parameters()])
    (name, _), *_ = causal_attention.named_buffers()
    yield (
        "causal_contexts",
        f"Saved with it: parameters {weights}, and the buffer {name}.",
    )


def checks(causal_attention, causal_contexts, x_batch, T):
    yield (
        "two equal sentences give two equal results",
        close(causal_contexts[0], causal_contexts[1]),
    )
    lengths = sorted({1, (T + 1) // 2, max(T - 1, 1)})
    alone = torch.cat([causal_attention(x_batch[:, :size])[0] for size in lengths])
    yield (
        f"cut to its first {listed([str(size) for size in lengths])} of "
        f"{count(T, 'token')}, the sentence gives the same rows as whole",
        close(alone, torch.cat([causal_contexts[0, :size] for size in lengths])),
    )
