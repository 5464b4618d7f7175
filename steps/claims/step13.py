"""What is said of step 13, and checked."""

from steps.compare import close
from steps.walk.order import Table
from steps.words import count


def notes(causal_attention, T, context_length):
    parts = [(n, "parameter", p) for n, p in causal_attention.named_parameters()]
    parts += [(n, "buffer", b) for n, b in causal_attention.named_buffers()]
    rows = tuple((name, kind, str(tuple(tensor.shape))) for name, kind, tensor in parts)
    yield Table(("in state_dict", "kind", "shape"), rows)
    yield (
        f"The input has {count(T, 'token')}, the mask room for context_length = "
        f"{context_length}."
    )


def checks(causal_attention, causal_contexts, x_batch, T):
    yield (
        "two equal sentences give two equal results",
        close(causal_contexts[0], causal_contexts[1]),
    )
    for length in sorted({1, (T + 1) // 2, max(T - 1, 1)}):
        shorter = causal_attention(x_batch[:, :length])
        yield (
            f"{count(length, 'token')} alone, from the start: the same rows as in the "
            "whole sentence",
            close(shorter[0], causal_contexts[0, :length]),
        )
