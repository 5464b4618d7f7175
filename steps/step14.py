"""Step 14: same input, different parameters

Article: "Same input, different parameters"

Every head reads all the input features of a token, through weights of its own. The
heads' query matrices are packed into one linear layer, one head's rows after the
other's; keys and values get layers of the same size. Nobody gives the heads jobs: only
their weights differ.

What is said of it, and checked: steps/claims/step14.py
"""

from steps.pytorch import nn, seeded


def step(d_in, H, D, seed):
    with seeded(seed):  # one family of weights, in the order of the class's constructor
        mha_W_query = nn.Linear(d_in, H * D, bias=False)  # weight (H*D, d_in)
        mha_W_key = nn.Linear(d_in, H * D, bias=False)  # weight (H*D, d_in)
        mha_W_value = nn.Linear(d_in, H * D, bias=False)  # weight (H*D, d_in)
    return locals()


def wrong_reseeded(x_batch, d_in, H, D, seed):
    """the seed set again before each layer, so that queries and keys share one matrix

    Why three matrices? With one for queries and keys each score is the same both ways.
    """
    with seeded(seed):
        same_query = nn.Linear(d_in, H * D, bias=False)
    with seeded(seed):
        same_key = nn.Linear(d_in, H * D, bias=False)
    symmetric_scores = same_query(x_batch) @ same_key(x_batch).mT  # (B, T, T)
    return locals()


def wrong_transpose(x_batch, mha_W_query):
    """the weight as it is stored, without the transpose

    An error when d_in and d_out differ; no error, and other numbers, when they do not.
    """
    packed = mha_W_query(x_batch)  # (B, T, H*D)
    untransposed = x_batch @ mha_W_query.weight
    return locals()


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
