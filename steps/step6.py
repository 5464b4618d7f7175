"""Step 6: dot-product scores

How alike are two tokens? A dot product gives one number for a pair: first the followed
token against every token, then every token against every token. Nothing is trainable
yet.

What is said of it, and checked: steps/claims/step6.py
"""


def step(x_batch, follow):
    x = x_batch[0]  # (T, d_in)
    one_input = x[follow]  # (d_in)
    one_similarity = x @ one_input  # (T)
    similarity = x @ x.T  # (T, T)
    return locals()


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
