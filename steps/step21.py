"""Step 21: the class

Article: "Single-Head Attention and Stacked Attention Layers"

Which shape does it return? forward takes x of shape (b, num_tokens, d_in), and the
constructor was given d_out. Decide before you read on.

These are forward's own lines, run with the weights of steps 14 and 19. Notice which of
them make new numbers, and which only rearrange numbers that are there already.

What is said of it, and checked: steps/claims/step21.py
"""

from steps import attention
from steps.attention import MultiHeadAttention
from steps.pytorch import loaded, seeded, torch

ALSO_RECORD = (attention.__file__,)  # forward's own lines


def step(
    x_batch, mha_W_query, mha_W_key, mha_W_value, out_proj, context_length, d_in,
    H, D, dropout, seed,
):  # fmt: skip
    d_out = H * D
    mha_weights = {
        "W_query.weight": mha_W_query.weight,
        "W_key.weight": mha_W_key.weight,
        "W_value.weight": mha_W_value.weight,
        "out_proj.weight": out_proj.weight,
        "out_proj.bias": torch.zeros(d_out),  # step 19's layer has none
    }
    with seeded(seed):
        mha = MultiHeadAttention(d_in, d_out, context_length, dropout, H)
    loaded(mha, mha_weights)
    with seeded(seed):  # for dropout, as in step 18
        class_vectors = mha(x_batch)
    return locals()


def wrong_heads(d_in, d_out, context_length, dropout):
    """a number of heads that does not divide d_out

    No slices of equal width would use all of it, and the constructor refuses.
    """
    num_heads = next(n for n in range(2, d_out + 2) if d_out % n)
    MultiHeadAttention(d_in, d_out, context_length, dropout, num_heads)


def wrong_length(mha, context_length, d_in):
    """an input longer than the context_length that the mask was made for

    A slice of the mask serves shorter inputs; there is none to cut for longer ones.
    """
    mha(torch.zeros(1, context_length + 1, d_in))


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
