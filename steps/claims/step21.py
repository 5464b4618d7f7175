"""What is said of step 21, and checked."""

import inspect

from steps import attention
from steps.attention import MultiHeadAttention
from steps.compare import close, equal, true
from steps.layout import Drawing, some
from steps.pytorch import seeded, torch
from steps.words import count, listed, span, times

SHOWN = ()  # steps 15 to 19 showed these numbers; the checks hold them against those
ROLES = ("queries", "keys", "values")
HEADS = ("head_queries", "head_keys", "head_values")
DRAWN = 78  # columns of a drawing


def look(x_batch, class_vectors, record, d_in, d_out):
    made = first_of_each(own_lines(record))
    stages = ("queries", "queries_by_token", "joined_contexts")
    axes = [str(len(made[name].shape)) for name in stages]
    came, went = tuple(x_batch.shape), tuple(class_vectors.shape)
    same = "as x came in, but only because d_in = d_out here"
    return (
        f"the shape it returns, (b, num_tokens, d_out) = {went}: "
        + (same if came == went else f"not the {came} that x came in with")
        + f". The width goes from d_in = {d_in} to d_out = {d_out}, the number of axes "
        f"{' -> '.join(axes)}."
    )


def notes(record, x_batch, mha_weights, context_length, d_out, d_in, B, T, H, D):
    lines = own_lines(record)
    made = first_of_each(lines)
    yield "path", path(made, lines, tuple(x_batch.shape))
    yield (
        "path",
        "b, num_tokens, num_heads and head_dim are the walk's B, T, H and D: "
        f"{B}, {T}, {H} and {D}.",
    )
    yield "class_vectors", listing(MultiHeadAttention.forward)
    yield "class_vectors", counted(lines)
    yield (
        "class_vectors",
        "Every shape has its own name here. The article keeps one for three: queries "
        "= self.W_query(x), queries = queries.view(...), queries = "
        "queries.transpose(1, 2).",
    )
    given, bias = list(mha_weights.items())[:-1], mha_weights["out_proj.bias"]
    q, out = tuple(given[0][1].shape), tuple(given[-1][1].shape)
    yield (
        "mha",
        f"{listed([name for name, _ in given[:-1]])}, {q} each, are step 14's; "
        f"out_proj.weight, {out}, is step 19's; out_proj.bias, {tuple(bias.shape)}, "
        "is zeros, since step 19 has none.",
    )
    yield (
        "mha",
        f"One projection per role, from d_in = {d_in} to d_out = {d_out}, all heads "
        "side by side. No weight has an axis for heads: head_dim = d_out / num_heads = "
        f"{d_out} / {H} = {D} is only how its result is indexed.",
    )
    yield "queries", columns(H, D)
    last = f"; head {H} is its head {H - 1}: {span('column', (H - 1) * D, D)}"
    yield (
        "queries",
        f"head 1 is the article's head 0: {span('column', 0, D)}{last * (H > 1)}.",
    )
    twice = dict.fromkeys(e.name for e in lines if e.axes.count("num_tokens") == 2)
    yield (
        "attn_scores",
        f"The token axis is there twice only in {listed(list(twice))}: each token's "
        f"query is compared with every token's key, {count(T * T, 'score')} per head. "
        f"blocked is the {times(T, T)} corner of the mask, made for context_length = "
        f"{context_length}. The product with head_values sums over the second and "
        "keeps the first.",
    )
    yield (
        "joined_contexts",
        "The final view can merge the last two axes because d_out = num_heads * "
        f"head_dim ({d_out} = {H} * {D}): the heads' results are side by side again. "
        "The shape is that of the result already, so out_proj is optional; with it, "
        "each feature of a token draws on "
        + (f"all {d_out} of them" if d_out > 1 else "the one there is")
        + (", whichever head they are from." if H > 1 else "."),
    )
    yield (
        "",
        "A shape error in a class of your own: print the shape after each line and "
        "hold it against this path. The first that differs is where the error begins. "
        "What comes after inherits the wrong shape, so the error message at the end "
        "is usually a symptom and not the cause.",
    )


def own_lines(record):
    """What forward's own lines made."""
    return [entry for entry in record if entry.place.file == attention.__file__]


def first_of_each(lines):
    return {entry.name: entry for entry in reversed(lines)}


def listing(function):
    """The source of a function, whole, with its line numbers."""
    lines, start = inspect.getsourcelines(function)
    indent = len(lines[0]) - len(lines[0].lstrip())
    numbered = [
        f"{at:>3} {line[indent:].rstrip()}" for at, line in enumerate(lines, start)
    ]
    last = start + len(lines) - 1
    title = f"steps/attention.py, lines {start} to {last}"
    return Drawing((title, *(line for line in numbered if line.strip(" 0123456789"))))


def counted(lines):
    """Where the numbers of forward's results are from, and its three parts."""
    kinds = [entry.origin for entry in lines]
    told = [f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)]
    split = [e.function for e in lines if e.name.endswith("_by_token")]
    moved = [e.function for e in lines if e.name in HEADS]
    projected = [e.name for e in lines if e.name in ROLES]
    return (
        f"forward's {len(kinds)} results: {listed(told)}. What is computed is "
        "attention as with one head, and out_proj. Three things make it multi-head: "
        f"{count(len(projected), 'linear layer')} project {listed(projected)} for all "
        f"heads at once; {count(split.count('view'), 'view')} and "
        f"{count(moved.count('transpose'), 'transpose')} give each head its slice of "
        "them; the final view and out_proj join the heads' results."
    )


def columns(H, D):
    """Each column of a token's row of queries under the head that it belongs to."""
    index = torch.arange(H * D).view(H, D)  # the same view, of the columns' numbers
    owner = {int(c): head for head in range(H) for c in index[head]}
    wide = len(str(H * D)) + 1
    starts = "column of queries ", "belongs to head   "
    top, below = starts
    last = None
    for c in some(H * D, (DRAWN - len(top)) // (wide + 2)):  # 2: a bar
        if c is None:
            top, below, last = top + "  ...", below + "  ...", None
            continue
        bar = "" if last in (None, owner[c]) else " |"
        top += bar + str(c).rjust(wide)
        below += bar + str(owner[c] + 1).rjust(wide)
        last = owner[c]
    return Drawing((top, below))


def path(made, lines, came):
    """The whole way through forward, with the shapes and origins of this run."""
    drawing = []

    def beside(drawn, text=""):
        drawing.append(f"{drawn:<40}{text}".rstrip())

    def stage(drawn, then, entry):
        beside(drawn, f"({', '.join(entry.axes)})")
        beside(then, f"= {entry.shape}, {entry.origin}")

    copied = next(e for e in lines if e.function == "contiguous")
    beside("x", "(b, num_tokens, d_in)")
    beside("+------------+------------+", f"= {came}")
    beside("| W_query    | W_key      | W_value")
    names = "queries      keys         values"
    stage(names, "| view       | view       | view", made["queries"])
    by_token = "..._by_token ..._by_token ..._by_token"
    stage(by_token, "| transpose  | transpose  | transpose", made["queries_by_token"])
    names = "head_queries head_keys    head_values"
    stage(names, "+----- @ ----+ transpose  |", made["head_queries"])
    rest = "| / head_dim**0.5         |"
    stage("attn_scores               |", rest, made["attn_scores"])
    beside("| mask, softmax, dropout  |")
    weights = [e for e in lines if e.name == "attn_weights"][-1]
    stage("attn_weights              |", "+----------- @ -----------+", weights)
    stage("head_contexts", "| transpose, contiguous", made["head_contexts"])
    stage("contexts_by_token", "| view", copied)
    stage("joined_contexts", "| out_proj", made["joined_contexts"])
    stage("context_vec", "", made["context_vec"])
    return Drawing(tuple(drawing))


def checks(
    record, class_vectors, packed_queries, queries_by_token, head_queries, head_keys,
    dropped_weights, head_contexts, joined_contexts, mha_context_vectors,
    mha_W_query, mha_W_key, mha_W_value, out_proj,
    context_length, d_in, B, T, H, D, seed,
):  # fmt: skip
    yield (
        "the shape returned is (b, num_tokens, d_out)",
        equal(tuple(class_vectors.shape), (B, T, H * D)),
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
    exact = [name for name in walk if equal(made[name], walk[name])]
    near = [name for name in walk if name not in exact]
    if exact:
        yield (
            f"{listed(exact)}: the walk's numbers, bit for bit",
            every(equal(made[name], walk[name]) for name in exact),
        )
    if near:
        yield (
            f"{listed(near)}: the walk's numbers, to within 1e-4",
            every(close(made[name], walk[name], atol=1e-4) for name in near),
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
            f"made from one seed with {count(H, 'head')} and with {other}, the class "
            "has the same weights: no head is built into them",
            every(
                equal(made_with[0][name], made_with[1][name]) for name in made_with[0]
            ),
        )
    layers = mha_W_query, mha_W_key, mha_W_value, out_proj
    names = ("W_query", "W_key", "W_value", "out_proj")
    yield (
        f"from seed {seed} the constructor itself draws the weights of steps 14 and 19",
        every(
            equal(made_with[0][f"{name}.weight"], layer.weight)
            for name, layer in zip(names, layers, strict=True)
        ),
    )


def every(outcomes):
    """The first outcome that does not hold, or one that does."""
    outcome = true(True, "")
    for outcome in outcomes:
        if not outcome:
            break
    return outcome
