"""Step 9: SelfAttention

The same computation for all tokens at once, as a class: version 1 keeps its weights as
plain parameters, version 2 in linear layers, which store them transposed.

What is said of it, and checked: steps/claims/step9.py
"""

from steps.attention import SelfAttention_v1, SelfAttention_v2
from steps.pytorch import loaded, seeded


def step(x, d_in, D, seed):
    with seeded(seed):
        sa_v1 = SelfAttention_v1(d_in, D)  # weight (d_in, D)
    same_weights = {f"{name}.weight": W.T for name, W in sa_v1.named_parameters()}
    with seeded(seed):
        sa_v2 = loaded(SelfAttention_v2(d_in, D), same_weights)  # weight (D, d_in)
    contexts_v1 = sa_v1(x)  # (T, D)
    contexts_v2 = sa_v2(x)  # (T, D)
    return locals()


def wrong_same_seed(x, d_in, D, seed):
    """one seed for both versions, in the hope of the same weights

    They draw differently, and in another layout. To compare layers, copy the weights.
    """
    with seeded(seed):
        seeded_v2 = SelfAttention_v2(d_in, D)
    seeded_contexts = seeded_v2(x)  # (T, D)
    return locals()


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
