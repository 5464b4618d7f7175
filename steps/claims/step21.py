"""What is said of step 21, and checked."""

from steps import attention
from steps.attention import MultiHeadAttention
from steps.compare import close, equal, true
from steps.pytorch import seeded, torch
from steps.walk.order import Drawing, Table
from steps.walk.text import some
from steps.words import listed, span

HEADS = ("head_queries", "head_keys", "head_values")


def notes(record, x_batch, context_vec, mha_weights, context_length, d_in, T, H, D):
    lines = [entry for entry in record if entry.place.file == attention.__file__]
    made = {entry.name: entry for entry in reversed(lines)}  # the first of each name
    came, went, d_out = tuple(x_batch.shape), tuple(context_vec.shape), H * D
    same = "the input's own shape, but only because d_in = d_out here"
    stages = ("queries", "queries_by_token", "joined_contexts")
    axes = [str(len(made[name].shape)) for name in stages]
    yield (
        f"The answer: (b, num_tokens, d_out) = {went}. x came in as (b, num_tokens, "
        f"d_in) = {came}: width d_in = {d_in} in, d_out = {d_out} out, "
        + (same if came == went else "so it is not the input's shape")
        + f". The number of axes went {' -> '.join(axes)} on the way."
    )
    kinds = [entry.origin for entry in lines]
    yield (
        f"Of forward's {len(kinds)} results {kinds.count('computed')} are computed, "
        f"{kinds.count('rearranged')} rearranged and {kinds.count('copied')} copied. "
        "What is computed is attention as with one head, and out_proj. What makes it "
        "multi-head are the views, the transposes of tokens and heads, and the merge."
    )
    yield parts(lines)
    sources = ("step 14", "step 14", "step 14", "step 19", "zeros")
    rows = [
        (name, str(tuple(weight.shape)), source)
        for (name, weight), source in zip(mha_weights.items(), sources, strict=True)
    ]
    yield Table(("parameter", "shape", "numbers from"), tuple(rows))
    yield (
        f"One projection a role, each from d_in = {d_in} to d_out = {d_out}, its "
        "result wide enough for all heads side by side. No weight has an axis for "
        f"heads: head_dim = d_out / num_heads = {d_out} / {H} = {D} is only how the "
        "result is indexed."
    )
    yield columns(H, D)
    yield path(made, lines, came)
    twice = dict.fromkeys(e.name for e in lines if e.axes.count("num_tokens") == 2)
    yield (
        f"The token axis is there twice in {listed(list(twice))}, and nowhere else: "
        "each token's query is compared with every token's key, so one axis is the "
        f"token that asks and one the token that is asked, {T} x {T} scores a head. "
        "The product with head_values sums over the second and keeps the first. The "
        f"mask was made for context_length = {context_length} tokens; blocked is the "
        f"{T} x {T} corner of it."
    )
    yield (
        "The final view can merge the last two axes because d_out = num_heads * "
        f"head_dim ({d_out} = {H} * {D}): the heads' results are side by side again, "
        "under one width. joined_contexts has the shape of the result already, so "
        "out_proj is optional; with it, every feature of a token can draw on all "
        f"{d_out} of them" + (", whichever head they are from." if H > 1 else ".")
    )
    yield (
        "A shape error in a method of your own: print the shape after each line and "
        "hold it against this path. The first that differs is where the error begins; "
        "everything after it inherits the wrong shape. Step 23 does that for a file, "
        "and compares the numbers as well, because a wrong split can keep every shape."
    )


def parts(lines):
    """The three parts of forward that matter most, counted."""
    split = [e.function for e in lines if e.name.endswith("_by_token")]
    moved = [e.function for e in lines if e.name in HEADS]
    projected = [e.name for e in lines if e.name in ("queries", "keys", "values")]
    rows = (
        ("project", f"{len(projected)} linear layers: {listed(projected)}"),
        (
            "split",
            f"{split.count('view')} views, {moved.count('transpose')} transposes: "
            + listed([e.name for e in lines if e.name in HEADS]),
        ),
        ("join", "the final view and out_proj: joined_contexts and context_vec"),
    )
    return Table(("part", "in forward"), rows)


def columns(H, D):
    """Each column of a token's row of queries under the head that it belongs to."""
    index = torch.arange(H * D).view(H, D)  # the same view, of the columns' numbers
    owner = {int(c): head for head in range(H) for c in index[head]}
    wide = len(str(H * D)) + 1
    shown = some(H * D, 80 // (wide + 2))  # what fits beside the words on the left
    top = below = ""
    last = None
    for c in shown:
        if c is None:
            top, below, last = top + "  ...", below + "  ...", None
            continue
        bar = "" if last in (None, owner[c]) else " |"
        top += bar + str(c).rjust(wide)
        below += bar + str(owner[c] + 1).rjust(wide)
        last = owner[c]
    heads = range(H) if H <= 4 else [*range(3), H - 1]
    spans = [
        f"head {head + 1} (index {head}): {span('column', head * D, D)}"
        for head in heads
    ]
    if H > 4:
        spans.insert(3, "...")
    return Drawing((f"column of queries {top}", f"belongs to head   {below}", *spans))


def path(made, lines, came):
    """The whole way through forward, with the shapes and origins of this run."""
    back = [entry for entry in lines if entry.statement.startswith("joined_contexts")]
    drawing = []

    def beside(drawn, text):
        drawing.append(f"{drawn:<53}{text}".rstrip())

    def stage(drawn, then, entry):
        beside(drawn, f"({', '.join(entry.axes)})")
        beside(then, f"= {entry.shape}, {entry.origin}")

    three, two = "|                 |                 |", "|" + 35 * " " + "|"
    beside("x", "(b, num_tokens, d_in)")
    beside("|", f"= {came}")
    beside("+-----------------+-----------------+", "")
    beside("| W_query         | W_key           | W_value", "")
    stage("queries           keys              values", three, made["queries"])
    beside("| view            | view            | view", "")
    by_token = "queries_by_token  keys_by_token     values_by_token"
    stage(by_token, three, made["queries_by_token"])
    beside("| transpose(1, 2) | transpose(1, 2) | transpose(1, 2)", "")
    per_head = "head_queries      head_keys         head_values"
    stage(per_head, three, made["head_queries"])
    beside("|                 | transpose(2, 3) |", "")
    beside("+------- @ -------+                 |", "")
    stage(two, "attn_scores                         |", made["attn_scores"])
    beside("| / head_dim**0.5                   |", "")
    beside("| masked_fill                       |", "")
    beside("| softmax                           |", "")
    stage("attn_weights                        |", two, made["attn_weights"])
    beside("| dropout                           |", "")
    beside("+---------------- @ ----------------+", "")
    stage("head_contexts", "|", made["head_contexts"])
    for name, entry in zip(("transpose(1, 2)", "contiguous()"), back, strict=False):
        stage(f"| {name}", "|", entry)
    beside("| view", "")
    stage("joined_contexts", "|", made["joined_contexts"])
    beside("| out_proj", "")
    stage("context_vec", "", made["context_vec"])
    return Drawing(tuple(drawing))


def checks(
    record, context_vec, packed_queries, queries_by_token, head_queries, head_keys,
    dropped_weights, head_contexts, joined_contexts,
    mha_context_vectors, context_length, d_in, B, T, H, D, seed,
):  # fmt: skip
    yield (
        "the shape is (b, num_tokens, d_out)",
        equal(tuple(context_vec.shape), (B, T, H * D)),
    )
    made = {entry.name: entry.tensor for entry in record}
    walk = {
        "queries": packed_queries,
        "queries_by_token": queries_by_token,
        "head_queries": head_queries,
        "head_keys": head_keys,
        "attn_weights": dropped_weights,
        "head_contexts": head_contexts,
        "joined_contexts": joined_contexts,
        "context_vec": mha_context_vectors,
    }
    for name, expected in walk.items():
        exactly = equal(made[name], expected)
        yield (
            f"{name}: the walk's numbers, "
            + ("bit for bit" if exactly else "to within 1e-4"),
            exactly or close(made[name], expected, atol=1e-4),
        )
    yield (
        "each head's slice of the transposed queries is its columns of the projection",
        every(
            equal(made["head_queries"][:, h], made["queries"][..., h * D : (h + 1) * D])
            for h in range(H)
        ),
    )
    yield (
        "the final view puts each head's results into its columns again",
        every(
            equal(
                made["joined_contexts"][..., h * D : (h + 1) * D],
                made["head_contexts"][:, h],
            )
            for h in range(H)
        ),
    )
    regrouped = [e for e in record if e.function in ("view", "transpose", "contiguous")]
    yield (
        f"none of the {len(regrouped)} view, transpose and contiguous calls computes",
        equal([e.function for e in regrouped if e.origin == "computed"], []),
    )
    made_with = []
    other = 1 if D == 1 else H * D
    for heads in (H, other):
        with seeded(seed):
            mha = MultiHeadAttention(d_in, H * D, context_length, 0.0, heads)
        made_with.append(mha.state_dict())
    if other != H:
        yield (
            f"made from one seed with {H} and with {other} heads, the class has the "
            "same weights: no head is built into them",
            every(
                equal(made_with[0][name], made_with[1][name]) for name in made_with[0]
            ),
        )


def every(outcomes):
    """The first outcome that does not hold, or one that does."""
    outcome = true(True, "")
    for outcome in outcomes:
        if not outcome:
            break
    return outcome
