"""What is said of step 9, and checked."""

from steps.compare import close, differ, equal


def checks(
    sa_v1,
    W_query,
    contexts_v1,
    contexts_v2,
    one_context,
    seeded_contexts_v1,
    seeded_contexts_v2,
    inputs,
    follow,
):
    yield "version 1 draws the weights of step 8", equal(sa_v1.W_query, W_query)
    yield (
        f"its row for {inputs[follow]} is the context vector of step 8",
        close(contexts_v1[follow], one_context, atol=1e-4),
    )
    yield (
        "with the same weights both versions agree",
        close(contexts_v1, contexts_v2, atol=1e-4),
    )
    yield (
        "one seed alone does not make them agree",
        differ(seeded_contexts_v1, seeded_contexts_v2),
    )
