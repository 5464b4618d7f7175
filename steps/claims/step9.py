"""What is said of step 9, and checked."""

from steps.attention import SelfAttention_v1
from steps.compare import close, differ, equal
from steps.pytorch import loaded, seeded, torch
from steps.words import row

SHOWN = ("contexts_v1",)
INSTEAD = {"seeded_contexts": "contexts_v2"}


def look(contexts_v1, inputs, follow):
    return (
        f'the context of "{inputs[follow]}", {row(contexts_v1[follow].tolist())}: the '
        "same from both versions."
    )


def notes(similarity_contexts, inputs, follow, d_in):
    context = row(similarity_contexts[follow].tolist())
    yield (
        "",
        "Why are these not the numbers of step 7? Steps 6 and 7 have no weights. With "
        f"{d_in**0.5:.4g} times the identity as W_query (the root of {d_in}, which "
        "scaling divides by) and the identity as W_key and W_value, the class gives "
        f'step 7\'s "{inputs[follow]}": {context}.',
    )


def unweighted(x, d_in, seed):
    """(T, d_in): what the layer gives with the weights that change nothing."""
    same = torch.eye(d_in)
    with seeded(seed), torch.no_grad():
        layer = SelfAttention_v1(d_in, d_in)
        weights = {"W_query": same * d_in**0.5, "W_key": same, "W_value": same}
        return loaded(layer, weights)(x)


def checks(
    sa_v1, sa_v2, W_query, x, contexts_v1, contexts_v2, one_context,
    similarity_contexts, seeded_contexts, inputs, follow, d_in, seed,
):  # fmt: skip
    yield "version 1 draws the weights of step 8", equal(sa_v1.W_query, W_query)
    yield (
        f'version 1 gives "{inputs[follow]}" the context vector of step 8',
        close(contexts_v1[follow], one_context, atol=1e-4),
    )
    yield (
        "with the same weights both versions agree",
        close(contexts_v1, contexts_v2, atol=1e-4),
    )
    yield (
        "version 2 stores the query weights of version 1 transposed",
        equal(sa_v2.W_query.weight, sa_v1.W_query.T),
    )
    yield (
        "with the identity for weights, W_query's times the root of d_in, the class "
        "gives step 7",
        close(unweighted(x, d_in, seed), similarity_contexts, atol=1e-4),
    )
    yield (
        "one seed alone does not make both versions agree",
        differ(seeded_contexts, contexts_v1),
    )
