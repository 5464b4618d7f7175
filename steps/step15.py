"""Step 15: project, view, transpose

Article: "view: the queries are already there"; "transpose: put all tokens inside each head"

What is computed, and what is merely rearranged? The projections compute the values; view
exposes the heads; transpose organizes them for the next multiplication.
"""

from steps.compare import close, equal, true
from steps.pytorch import torch
from steps.walk.order import Table
from steps.words import count


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
    return (
        packed_queries, packed_keys, packed_values,
        queries_by_token, keys_by_token, values_by_token,
        head_queries, head_keys, head_values,
    )


def wrong_view(packed_queries, B, T, H, D):
    """view asked for the final shape at once. It is the shape of head_queries, and the
    numbers are dealt out in the order they are stored in, whichever head they belong to"""
    wrong_queries = packed_queries.view(B, H, T, D)  # (B, H, T?, D)
    return wrong_queries


def notes(packed_queries, inputs, B, T, H, D):
    same = "is" if H == 1 or T == 1 else "is not"
    yield (
        f"{packed_queries.numel()} elements throughout: {B} x {T} x {H * D} = {B} x {T} x {H} x {D}. "
        f"No query is recalculated and no weight changes. With {count(H, 'head')} and "
        f"{count(T, 'token')}, view({B}, {H}, {T}, {D}) {same} the same as view and transpose; the "
        "rows hold, counted in elements of the projection:"
    )
    numbers = torch.arange(B * T * H * D)  # the same operations on index numbers
    right = numbers.view(B, T, H, D).transpose(1, 2)[0]
    wrong = numbers.view(B, H, T, D)[0]

    def owner(row):
        first, last = int(row[0]), int(row[-1])
        span = str(first) if first == last else f"{first}-{last}"
        token, head = divmod(first // D, H)
        return f"{inputs[token]}, head {head + 1}: elements {span}"

    rows = tuple(
        (f"[0, {h}, {t}]", owner(right[h, t]), owner(wrong[h, t]))
        for h in range(H)
        for t in range(T)
    )
    yield Table(("place", "view and transpose", "view at once"), rows)


def checks(
    packed_queries, queries_by_token, head_queries, wrong_queries, inputs, follow, T, H, D
):
    yield "view and transpose share the storage of the projection", equal(
        [head_queries.data_ptr(), queries_by_token.data_ptr()], [packed_queries.data_ptr()] * 2
    )
    yield f"queries_by_token[0, {follow}, 0] is head_queries[0, 0, {follow}]: {inputs[follow]}, head 1", equal(
        queries_by_token[0, follow, 0], head_queries[0, 0, follow]
    )
    groups = [packed_queries[:, :, head * D : (head + 1) * D] for head in range(H)]
    yield "head h of head_queries is columns h*D to (h+1)*D of packed_queries", equal(
        head_queries, torch.stack(groups, dim=1)
    )
    yield "view at once gives the same shape", equal(
        tuple(wrong_queries.shape), tuple(head_queries.shape)
    )
    if H > 1 and T > 1:
        yield "and other rows", true(
            not torch.equal(wrong_queries, head_queries), "every row is the same"
        )
    else:
        yield "and, with one head or one token, the same rows", equal(wrong_queries, head_queries)


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
