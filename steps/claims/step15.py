"""What is said of step 15, and checked."""

from steps.compare import differ, equal
from steps.pytorch import torch
from steps.words import count, span, times

INSTEAD = {"wrong_queries": "head_queries"}


def look(inputs, follow, H, D):
    width = H * D
    return (
        f'"{inputs[follow]}"\'s query, {count(width, "number")}. The projection '
        f"computes it once, at {span('offset', follow * width, width)} of one storage, "
        "and there it stays: view and transpose change only the index that reaches it."
    )


def notes(packed_queries, queries_by_token, inputs, follow, B, T, H, D):
    token, by_token, by_head = inputs[follow], (B, T, H, D), (B, H, T, D)
    everyone = ("the one head", "both heads")[H - 1] if H < 3 else f"all {H} heads"
    yield (
        "packed_queries",
        f"{tuple(packed_queries.shape)} reads: {count(B, 'sentence')}, "
        f"{count(T, 'token')}, {count(H * D, 'query number')} per token, the results "
        f"of {everyone} already: head 1 (index 0; some count from head 0) has "
        f"{span('column', 0, D)}"
        + (f", head {H} {span('column', (H - 1) * D, D)}." if H > 1 else "."),
    )
    yield (
        "queries_by_token",
        f"{by_token} reads: {count(B, 'sentence')}, {count(T, 'token')}, "
        f"{count(H, 'head')} per token, {count(D, 'query number')} per head; the "
        "article writes (batch_size, num_tokens, NUM_HEADS, HEAD_DIM). "
        f'"{token}"\'s row of {H * D} becomes {count(H, "group")} of {D}. '
        f"{times(B, T, H * D)} = {times(B, T, H, D)}: the "
        f"{count(packed_queries.numel(), 'element')} stay, no query is calculated "
        "again, and no weight changes. Keys and values receive the same "
        "transformation.",
    )
    yield (
        "head_queries",
        f"Axes 1 and 2 (counted from 0) change places, {by_token} -> {by_head}, and "
        "nothing else: before, each token contains every head; after, each head "
        f"contains every token. queries_by_token[0, {follow}, 0] and "
        f"head_queries[0, 0, {follow}] are the same vector.",
    )
    if H > 1 and T > 1:
        right, wrong = owners(B, T, H, D)
        at = (0, follow) if right[0, follow] != wrong[0, follow] else None
        if at is None:
            at = tuple((right != wrong).nonzero()[0].tolist())
        place = f"[0, {at[0]}, {at[1]}]"
        right_owner, wrong_owner = (
            f'"{inputs[int(o) // H]}", head {int(o) % H + 1}'
            for o in (right[at], wrong[at])
        )
        yield (
            "wrong_view",
            f"Place {place} is to hold {right_owner}, and holds {wrong_owner}.",
        )


def owners(B, T, H, D):
    """(H, T) twice: which row of D numbers, of token * H + head, each place gets."""
    rows = torch.arange(T * H)  # the same operations on the rows' own numbers
    return rows.view(T, H).transpose(0, 1), rows.view(H, T)


def checks(
    packed_queries, packed_keys, packed_values,
    queries_by_token, keys_by_token, values_by_token,
    head_queries, head_keys, head_values,
    wrong_queries, inputs, follow, T, H, D,
):  # fmt: skip
    by_token = queries_by_token, keys_by_token, values_by_token
    by_head = head_queries, head_keys, head_values
    yield (
        "queries, keys and values keep their projection's storage through view and "
        "transpose",
        equal(
            [tensor.data_ptr() for tensor in (*by_token, *by_head)],
            [t.data_ptr() for t in (packed_queries, packed_keys, packed_values)] * 2,
        ),
    )
    yield (
        f"queries_by_token[0, {follow}, 0] is head_queries[0, 0, {follow}]: "
        f'"{inputs[follow]}", head 1',
        equal(queries_by_token[0, follow, 0], head_queries[0, 0, follow]),
    )
    groups = [packed_queries[:, :, head * D : (head + 1) * D] for head in range(H)]
    yield (
        "head h of head_queries is columns h*D to (h+1)*D - 1 of packed_queries",
        equal(head_queries, torch.stack(groups, dim=1)),
    )
    yield (
        "view asked for the last shape at once gives that shape",
        equal(tuple(wrong_queries.shape), tuple(head_queries.shape)),
    )
    if H > 1 and T > 1:
        yield (
            "view asked for the last shape at once puts other rows into it",
            differ(wrong_queries, head_queries, atol=0),
        )
    else:
        yield (
            "with one head or one token view alone puts the same rows into it",
            equal(wrong_queries, head_queries),
        )
