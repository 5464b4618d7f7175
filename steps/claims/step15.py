"""What is said of step 15, and checked."""

from steps.compare import equal, true
from steps.pytorch import torch
from steps.walk.order import Table
from steps.words import count, span


def notes(packed_queries, inputs, follow, B, T, H, D):
    by_token, by_head = (B, T, H, D), (B, H, T, D)
    yield (
        f"{by_token} reads: {count(B, 'sentence')}, {count(T, 'token')}, "
        f"{count(H, 'head')} per token, {count(D, 'query number')} per head. Axis 1 "
        "holds tokens and axis 2 heads (counted from 0), and the transpose swaps the "
        f"two: {by_token} -> {by_head}. Before it, each token contains every head: "
        f"queries_by_token[0, {follow}] is {inputs[follow]}'s, {H} x {D}. After it, "
        f"each head contains every token: head_queries[0, 0] is head 1's, {T} x {D}."
    )
    alike = H == 1 or T == 1
    same = "is" if alike else "is not"
    misfit = "" if alike else " (step 19 meets one that does not)"
    yield (
        f"{count(packed_queries.numel(), 'element')} throughout: {B} x {T} x {H * D} = "
        f"{B} x {T} x {H} x {D}. No query is recalculated and no weight changes. A "
        f"view's shape has to fit the way the storage is laid out{misfit}. With "
        f"{count(H, 'head')} and {count(T, 'token')}, view({B}, {H}, {T}, {D}) {same} "
        "the same as view and transpose; the rows hold, counted in elements of the "
        "projection:"
    )
    numbers = torch.arange(B * T * H * D)  # the same operations on index numbers
    right = numbers.view(B, T, H, D).transpose(1, 2)[0]
    wrong = numbers.view(B, H, T, D)[0]

    def owner(row):
        first = int(row[0])
        token, head = divmod(first // D, H)
        return f"{inputs[token]}, head {head + 1}: {span('element', first, D)}"

    rows = tuple(
        (f"[0, {h}, {t}]", owner(right[h, t]), owner(wrong[h, t]))
        for h in range(H)
        for t in range(T)
    )
    yield Table(("place", "view and transpose", "view at once"), rows)


def checks(
    packed_queries, packed_keys, packed_values,
    queries_by_token, keys_by_token, values_by_token,
    head_queries, head_keys, head_values,
    wrong_queries, inputs, follow, T, H, D,
):  # fmt: skip
    yield (
        "view and transpose share the storage of the projection: queries, keys, values",
        equal(
            [
                tensor.data_ptr()
                for tensor in (
                    *(queries_by_token, keys_by_token, values_by_token),
                    *(head_queries, head_keys, head_values),
                )
            ],
            [t.data_ptr() for t in (packed_queries, packed_keys, packed_values)] * 2,
        ),
    )
    yield (
        f"queries_by_token[0, {follow}, 0] is head_queries[0, 0, {follow}]: "
        f"{inputs[follow]}, head 1",
        equal(queries_by_token[0, follow, 0], head_queries[0, 0, follow]),
    )
    groups = [packed_queries[:, :, head * D : (head + 1) * D] for head in range(H)]
    yield (
        "head h of head_queries is columns h*D to (h+1)*D of packed_queries",
        equal(head_queries, torch.stack(groups, dim=1)),
    )
    yield (
        "view at once gives the same shape",
        equal(tuple(wrong_queries.shape), tuple(head_queries.shape)),
    )
    if H > 1 and T > 1:
        yield (
            "and other rows",
            true(not torch.equal(wrong_queries, head_queries), "every row is the same"),
        )
    else:
        yield (
            "and, with one head or one token, the same rows",
            equal(wrong_queries, head_queries),
        )
