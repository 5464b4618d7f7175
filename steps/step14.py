"""Step 14: same input, different parameters

Article: "Same input, different parameters"

Every head reads all the input features of a token, through weights of its own. The
heads' query matrices are packed into one linear layer, one head's rows after the
other's; keys and values get layers of the same size. Nobody gives the heads jobs: only
their weights differ.
"""

from steps.pytorch import nn, seeded


def step(d_in, H, D, seed):
    with seeded(seed):  # one family of weights, in the order of the class's constructor
        mha_W_query = nn.Linear(d_in, H * D, bias=False)  # weight (H*D, d_in)
        mha_W_key = nn.Linear(d_in, H * D, bias=False)  # weight (H*D, d_in)
        mha_W_value = nn.Linear(d_in, H * D, bias=False)  # weight (H*D, d_in)
    return mha_W_query, mha_W_key, mha_W_value


def wrong_reseeded(x_batch, d_in, H, D, seed):
    """the seed set again before each layer: queries and keys get the same weights, and
    the scores come out symmetric"""
    with seeded(seed):
        same_query = nn.Linear(d_in, H * D, bias=False)  # weight (H*D, d_in)
    with seeded(seed):
        same_key = nn.Linear(d_in, H * D, bias=False)  # weight (H*D, d_in)
    symmetric_scores = same_query(x_batch) @ same_key(x_batch).mT  # (B, T, T)
    return same_query, same_key, symmetric_scores


def wrong_transpose(x_batch, mha_W_query):
    """the weight used as it is stored, without the transpose: an error when d_in and
    d_out differ, and no error when they are the same"""
    x_batch @ mha_W_query.weight


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
