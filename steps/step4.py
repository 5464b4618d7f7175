"""Step 4: token embeddings

An embedding layer is a table with a row for every id of the vocabulary. Looking up
copies the rows; nothing is computed.

What is said of it, and checked: steps/claims/step4.py
"""

from steps.pytorch import nn, seeded

VOCABULARY = 50257  # GPT-2's


def step(batch_ids, B, T, d_in, seed):
    V = VOCABULARY
    with seeded(seed):
        token_embedding_layer = nn.Embedding(V, d_in)  # weight (V, d_in)
    token_embeddings = token_embedding_layer(batch_ids)  # (B, T, d_in)
    return locals()


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
