"""Step 8: trainable q, k, v

Three weight matrices make a query, a key and a value of every input, so that training
can change what is compared and what is passed on. First for the followed token alone.

What is said of it, and checked: steps/claims/step8.py
"""

from steps.pytorch import nn, seeded, torch


def step(x, follow, d_in, D, seed):
    with seeded(seed):
        W_query = nn.Parameter(torch.rand(d_in, D))  # (d_in, D)
        W_key = nn.Parameter(torch.rand(d_in, D))  # (d_in, D)
        W_value = nn.Parameter(torch.rand(d_in, D))  # (d_in, D)
    one_query = x[follow] @ W_query  # (D)
    keys = x @ W_key  # (T, D)
    values = x @ W_value  # (T, D)
    one_scores = keys @ one_query  # (T)
    one_weights = torch.softmax(one_scores / D**0.5, dim=-1)  # (T)
    one_context = one_weights @ values  # (D)
    return locals()


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
