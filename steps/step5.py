"""Step 5: position embeddings

A second table has a row for every position. Added to the token embeddings it makes
x_batch, the input of every later step: what the token is, and where it stands.

What is said of it, and checked: steps/claims/step5.py
"""

from steps.pytorch import nn, seeded, torch


def step(token_embedding_layer, token_embeddings, T, d_in, seed):
    context_length = 2 * T  # room for a longer sentence than this one
    with seeded(seed, after=[token_embedding_layer]):
        # weight (context_length, d_in)
        position_embedding_layer = nn.Embedding(context_length, d_in)
    position_embeddings = position_embedding_layer(torch.arange(T))  # (T, d_in)
    x_batch = token_embeddings + position_embeddings  # (B, T, d_in)
    return locals()


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
