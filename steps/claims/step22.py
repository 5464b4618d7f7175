"""What is said of step 22, and checked."""

from steps.attention import ROLES, MultiHeadAttention, MultiHeadAttentionWrapper
from steps.compare import close, differ, equal
from steps.layout import Drawing, Table
from steps.pytorch import seeded, torch, undrawn
from steps.step24 import HEAD_DIM, HEADS, WIDTH
from steps.words import count, span

SHOWN = ("stacked_contexts",)
BRIEF = SHOWN
INSTEAD = {"one_seed_contexts": "wrapper_contexts"}


def look(wrapper, integrated):
    apart, once = matrices(wrapper), matrices(integrated)
    return (
        f"the wrapper's {len(apart)} matrices, {shape(apart[0])} each, and the class's "
        f"{len(once)}, {shape(once[0])} each, for queries, keys and values: "
        f"{total(apart)} numbers there, {total(once)} here. Stacked by rows, they give "
        "the same output."
    )


def notes(wrapper, integrated, x_batch, d_in, H, D):
    yield "wrapper", query_side(wrapper, integrated, x_batch)
    yield "wrapper", "Keys and values are projected and split in the same two ways."
    with seeded(0):
        wide = MultiHeadAttentionWrapper(1, H * D, 1, 0.0, H)
    width = wide(torch.ones(1, 1, 1)).shape[-1]
    yield (
        "integrated",
        f"d_out is the width of one head in the wrapper ({D} here) and of all heads "
        f"together in the class ({H * D}). "
        + (
            f"A wrapper given the class's d_out = {H * D} returns "
            f"{count(width, 'feature')}."
            if H > 1
            else "With one head that is the same."
        ),
    )
    yield "integrated", counts(d_in, H, D)
    yield (
        "integrated",
        "Counted on the modules; a multiplication is a call, as forward runs, that "
        "multiplies two tensors. out_proj is in the class only, and left out below.",
    )
    parts = [
        f"heads[{h}] {span('row', h * D, D)}" for h in sorted({0, min(1, H - 1), H - 1})
    ]
    stack = "One head under the other" if H > 1 else "The one head"
    yield "stacked_query", f"{stack}: {', '.join(parts)}."
    yield "wrong_one_seed", draws(wrapper, d_in, H, D)
    if H > 1:
        second = span("number", d_in * D, d_in * D)
        yield (
            "wrong_one_seed",
            f"Of {second} drawn, the wrapper makes keys of head 1, and the class "
            "queries of head 2. Stacking by rows puts each where it belongs.",
        )
    else:
        yield "wrong_one_seed", "With one head both draw in the same order."


def matrices(module):
    """The weights of queries, keys and values, those of out_proj left out."""
    named = module.named_parameters()
    return [p for n, p in named if p.dim() == 2 and not n.startswith("out_proj")]


def query_side(wrapper, integrated, x_batch):
    """From x to the queries of each head, in both."""
    H, D = integrated.num_heads, integrated.head_dim
    shown = range(H) if H <= 4 else (0, 1, None, H - 1)
    queries = integrated.W_query(x_batch)
    by_token = queries.view(*queries.shape[:-1], H, D)
    by_head = by_token.transpose(1, 2)
    left = ["MultiHeadAttentionWrapper", f"x {shape(x_batch)}"]
    right = ["MultiHeadAttention", f"x {shape(x_batch)}"]
    right += ["| W_query " + shape(integrated.W_query.weight)]
    right += [f"queries {shape(queries)}", "| view"]
    right += [f"queries_by_token {shape(by_token)}", "| transpose(1, 2)"]
    right += [f"head_queries {shape(by_head)}"]
    for head in shown:
        if head is None:
            left += ["|  ..."]
            right += ["|  ..."]
            continue
        layer = wrapper.heads[head].W_query
        left += ["|", f"+- heads[{head}].W_query {shape(layer.weight)}"]
        left += [f"|  queries of head {head + 1}: {shape(layer(x_batch))}"]
        right += [f"+- of head {head + 1}: {shape(by_head[:, head])}"]
    height = max(len(left), len(right))
    wide = max(len(line) for line in left) + 4
    left += [""] * (height - len(left))
    right += [""] * (height - len(right))
    both = [f"{a:<{wide}}{b}".rstrip() for a, b in zip(left, right, strict=True)]
    return Drawing(tuple(both))


def total(weights):
    return f"{sum(weight.numel() for weight in weights):,}"


def shape(tensor):
    return str(tuple(tensor.shape))


def draws(wrapper, d_in, H, D):
    """Where the numbers go that one seed draws, one after the other."""
    names = [name for name, _ in wrapper.named_parameters()]
    size = d_in * D
    rows = []
    for turn, name in enumerate(names):
        role, head = ROLES[turn // H], turn % H
        rows.append(
            (
                span("", turn * size, size),
                name.removesuffix(".weight"),
                f"{role}, {span('row', head * D, D)} (head {head + 1})",
            )
        )
    return Table(("numbers drawn", "in the wrapper", "in the class"), tuple(rows))


def counts(d_in, H, D):
    """Both classes, at this size and at GPT-2's, counted on the modules."""
    columns = []
    here, there = (d_in, H, D, ""), (WIDTH, HEADS, HEAD_DIM, "GPT-2: ")
    for width, heads, head_dim, at in (here, there):
        sizes = (width, head_dim, 1, 0.0, heads)
        told = counted(MultiHeadAttentionWrapper, sizes)
        columns.append((f"{at}wrapper", *told))
        sizes = (width, heads * head_dim, 1, 0.0, heads)
        columns.append((f"{at}class", *counted(MultiHeadAttention, sizes)))
    what = (
        "",
        "num_heads x head_dim",
        "d_out given",
        "width of the output",
        "matrices for q, k, v",
        "  each",
        "matrices in out_proj",
        "parameters",
        "  in q, k, v",
        "matrix multiplications",
    )
    rows = list(zip(what, *columns, strict=True))
    return Table(rows[0], tuple(rows[1:]))


def counted(kind, sizes):
    d_in, d_out, _, _, heads = sizes
    with undrawn():
        module = kind(*sizes)
    with Products() as products:
        width = module(torch.ones(1, 1, d_in)).shape[-1]
    apart, every = matrices(module), list(module.parameters())
    return (
        f"{heads} x {width // heads}",
        str(d_out),
        str(width),
        str(len(apart)),
        shape(apart[0]),
        str(sum(p.dim() == 2 for p in every) - len(apart)),
        total(every),
        total(apart),
        str(products.count),
    )


def checks(
    wrapper, integrated, x_batch, wrapper_contexts, one_seed_contexts,
    stacked_contexts, T, d_in, H, D, seed,
):  # fmt: skip
    yield (
        "with weights stacked by rows the class gives the wrapper's output, "
        "to float precision",
        close(stacked_contexts, wrapper_contexts),
    )
    for role in ROLES:
        apart = [getattr(head, role)(x_batch) for head in wrapper.heads]
        yield (
            f"the class's {role} gives the results of the wrapper's heads side by side",
            close(
                getattr(integrated, role)(x_batch), torch.cat(apart, dim=-1), atol=1e-4
            ),
        )
    with seeded(seed):
        drawn = MultiHeadAttention(d_in, H * D, T, 0.0, H)
    one_after_the_other = [p.flatten() for p in wrapper.parameters()]
    own = [getattr(drawn, role).weight.flatten() for role in ROLES]
    yield (
        "one seed draws the same numbers for both classes, in the order of the table",
        equal(torch.cat(own), torch.cat(one_after_the_other)),
    )
    if H > 1:
        yield (
            "one seed puts them in other places: the classes' outputs differ",
            differ(one_seed_contexts, wrapper_contexts),
        )
    else:
        yield (
            "with one head, one seed puts them in the same places: the classes' "
            "outputs agree",
            close(one_seed_contexts, wrapper_contexts),
        )
    extra = set(drawn.state_dict()) - {"mask", *(f"{role}.weight" for role in ROLES)}
    yield (
        "only the class has out_proj",
        equal(
            (sorted(extra), [n for n in wrapper.state_dict() if "out_proj" in n]),
            (["out_proj.bias", "out_proj.weight"], []),
        ),
    )


class Products(torch.overrides.TorchFunctionMode):
    """Counts the matrix products asked for while it is open."""

    count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.count += func.__name__ in ("linear", "matmul", "__matmul__")
        return func(*args, **(kwargs or {}))
