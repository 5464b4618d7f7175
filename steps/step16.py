"""Step 16: score

Article: "Each head gets its own attention matrix"

Heads come first because matrix multiplication takes the last two axes as matrices and
does one product for every batch and head: each head compares every query with every
key, alone.

What is said of it, and checked: steps/claims/step16.py
"""


def step(head_queries, head_keys, D):
    head_raw_scores = head_queries @ head_keys.transpose(-2, -1)  # (B, H, T, T)
    scaled = head_raw_scores / D**0.5  # (B, H, T, T)
    return locals()


def wrong_width(head_raw_scores, H, D):
    """scaled by the width of all heads together

    A score is a sum over the features of one head, so one head's width is what counts.
    """
    wrong_scaled = head_raw_scores / (H * D) ** 0.5  # (B, H, T, T)
    return locals()


def wrong_sign(head_raw_scores, D):
    """divided by D**-0.5, which multiplies by the root

    The shape cannot show it: only numbers can.
    """
    multiplied = head_raw_scores / D**-0.5  # (B, H, T, T)
    return locals()


def wrong_axes(queries_by_token, keys_by_token):
    """tokens and heads not exchanged first

    Each token's heads are compared with each other then, and tokens never meet.
    """
    heads_compared = queries_by_token @ keys_by_token.transpose(-2, -1)  # (B, T, H, H)
    return locals()


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
