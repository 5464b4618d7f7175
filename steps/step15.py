"""Step 15: project, view, transpose

Article: "Same input, different parameters"; "view: the queries are already there";
"transpose: put all tokens inside each head"

What is computed, and what is merely rearranged? The projections compute the values;
view exposes the heads; transpose organizes them for the next multiplication.

What is said of it, and checked: steps/claims/step15.py
"""


def step(x_batch, mha_W_query, mha_W_key, mha_W_value, B, T, H, D):
    packed_queries = mha_W_query(x_batch)  # (B, T, H*D)
    packed_keys = mha_W_key(x_batch)  # (B, T, H*D)
    packed_values = mha_W_value(x_batch)  # (B, T, H*D)

    queries_by_token = packed_queries.view(B, T, H, D)  # (B, T, H, D)
    keys_by_token = packed_keys.view(B, T, H, D)  # (B, T, H, D)
    values_by_token = packed_values.view(B, T, H, D)  # (B, T, H, D)

    head_queries = queries_by_token.transpose(1, 2)  # (B, H, T, D)
    head_keys = keys_by_token.transpose(1, 2)  # (B, H, T, D)
    head_values = values_by_token.transpose(1, 2)  # (B, H, T, D)
    return locals()


def wrong_view(packed_queries, B, T, H, D):
    """the last shape asked of view at once

    view deals the numbers out in the order they are stored in, token by token. To have
    them head by head an axis must be moved, and only transpose does that.
    """
    wrong_queries = packed_queries.view(B, H, T, D)  # (B, H, T?, D)
    return locals()


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
