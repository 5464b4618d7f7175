"""Step 14: same input, different parameters

Article: "Same input, different parameters"

Every head reads all the input features of a token, through weights of its own. The heads'
query matrices are packed into one linear layer, one head's rows after the other's; keys and
values get layers of the same size.
"""

from steps.compare import close, equal
from steps.pytorch import nn, seeded


def step(d_in, H, D, seed):
    with seeded(seed):  # one family of weights, in the order of the class's constructor
        mha_W_query = nn.Linear(d_in, H * D, bias=False)  # weight (H*D, d_in)
        mha_W_key = nn.Linear(d_in, H * D, bias=False)  # weight (H*D, d_in)
        mha_W_value = nn.Linear(d_in, H * D, bias=False)  # weight (H*D, d_in)
    return mha_W_query, mha_W_key, mha_W_value


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
