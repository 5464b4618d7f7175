"""Step 21: the class

Article: "Single-Head Attention and Stacked Attention Layers"

Which shape does it return? forward takes x of shape (b, num_tokens, d_in), and the
constructor was given d_out. Decide before you read on.

These are forward's own lines, run with the weights of steps 14 and 19, and zeros for
the bias that step 19's layer does without. Notice which lines make new numbers, and
which only rearrange numbers that are there already.
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
    no_bias = torch.zeros(d_out)  # (d_out)
    with seeded(seed):  # for the weights it is made with, which are replaced
        mha = MultiHeadAttention(d_in, d_out, context_length, dropout, H)
    mha_weights = {
        "W_query.weight": mha_W_query.weight,
        "W_key.weight": mha_W_key.weight,
        "W_value.weight": mha_W_value.weight,
        "out_proj.weight": out_proj.weight,
        "out_proj.bias": no_bias,  # the class's layer has one, step 19's has none
    }
    mha = loaded(mha, mha_weights)
    with seeded(seed):  # for dropout, as in step 18
        context_vec = mha(x_batch)
    return mha_weights, context_vec


def wrong_heads(d_in, H, D, context_length, dropout):
    """a number of heads that does not divide d_out: no slices of equal width would use
    all of it, and the constructor refuses"""
    d_out = H * D
    num_heads = next(number for number in range(2, d_out + 2) if d_out % number)
    mha = MultiHeadAttention(d_in, d_out, context_length, dropout, num_heads)
    return mha


def wrong_length(d_in, H, D, context_length, seed):
    """an input longer than the context_length that the mask was made for"""
    with seeded(seed):
        mha = MultiHeadAttention(d_in, H * D, context_length, 0.0, H)
    too_long = mha(torch.zeros(1, context_length + 1, d_in))
    return too_long


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
