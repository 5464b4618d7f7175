"""Step 13: CausalAttention

One masked head with dropout as a class, for batches. The mask is a buffer: it moves and
is saved with the module, and it is not trained.

What is said of it, and checked: steps/claims/step13.py
"""

from steps.attention import CausalAttention
from steps.pytorch import seeded, torch


def step(x_batch, d_in, D, context_length, seed):
    with seeded(seed):
        # weight (D, d_in)
        causal_attention = CausalAttention(d_in, D, context_length, dropout=0.0)
    batch = torch.cat((x_batch, x_batch))  # (2*B, T, d_in)
    causal_contexts = causal_attention(batch)  # (2*B, T, D)
    return locals()


def wrong_unsliced(x_batch, causal_attention):
    """the whole mask on a shorter input

    With one token there is no error, but scores stretched to the size of the mask.
    """
    # (B, T, T)
    scores = causal_attention.W_query(x_batch) @ causal_attention.W_key(x_batch).mT
    unsliced = scores.masked_fill(causal_attention.mask.bool(), -torch.inf)
    return locals()


def wrong_too_long(x_batch, causal_attention):
    """an input longer than context_length, for which there is no mask"""
    three_times = torch.cat((x_batch, x_batch, x_batch), dim=1)  # (B, 3*T, d_in)
    causal_attention(three_times)


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
