"""What is said of step 24, and checked."""

from steps.attention import ROLES
from steps.compare import close, differ, equal
from steps.layout import Table
from steps.pytorch import torch
from steps.scale.cost import LENGTHS, fused_bytes, kept, score_elements, size
from steps.step24 import HEAD_DIM, HEADS, WIDTH, fused_attention
from steps.words import span

SHOWN = ()
INSTEAD = {
    "wrong_contexts": "fused_contexts",
    "wrong_vectors": "torch_vectors",
    "mixed_vectors": "two_vectors",
    "mixed_weights": "two_weights",
}
FEW = 4  # tokens; what is kept for training is measured at this length


def look(q, head_weights):
    return (
        "two shapes that only the names of their axes tell apart, "
        f"{shape(q)}: the queries are (B, H, T, D), the weights (B, H, T, T), which is "
        "what grows with the square of T."
    )


def notes(
    in_proj_weight, mean_weights, head_weights, two, torch_mha, tokens_first,
    two_vectors, mixed_vectors,
):  # fmt: skip
    yield from costs()
    rows = []
    for place, layer in enumerate(ROLES):
        at = place * WIDTH
        rows.append((layer, span("", at, WIDTH), span("", at, HEAD_DIM)))
    header = ("rows of in_proj_weight", "all heads", "head 1")
    yield "in_proj_weight", Table(header, tuple(rows))
    yield (
        "in_proj_weight",
        f"Nothing is to be projected before torch_mha(x, x, x): {len(ROLES)} x {WIDTH} "
        f"= {len(in_proj_weight)} rows do that inside. Queries, keys and values given "
        "to it are projected once more.",
    )
    yield (
        "head_weights",
        f"The default is the mean over the heads, {shape(mean_weights)}; this is each "
        f"head's own, {shape(head_weights)}.",
    )
    right, mixed = (
        changed_rows(module, two, vectors)
        for module, vectors in ((torch_mha, two_vectors), (tokens_first, mixed_vectors))
    )
    yield (
        "wrong_batch_axis",
        f"Only sentence 2 changed: of sentence 1's {two.shape[1]} rows {mixed} come "
        f"out changed; with batch_first=True {right or 'none'}.",
    )


def shape(tensor):
    return tuple(tensor.shape)


def costs():
    """What scores cost, and what the fused form keeps instead."""
    H, D = HEADS, HEAD_DIM
    rows = []
    for T in LENGTHS:
        scores = score_elements(T, H)
        sizes = [scores * 4, scores * 2]  # bytes in float32 and in bfloat16
        sizes += [fused_bytes(T, H, D, 4), fused_bytes(T, H, D, 2)]
        rows.append((f"{T:,}", f"{scores:,}", *map(size, sizes)))
    header = ("T", "scores (H*T*T)", "float32", "bfloat16")
    header += ("fused, float32", "bfloat16")
    yield "fused_contexts", Table(header, tuple(rows))
    yield (
        "fused_contexts",
        "What the fused form keeps for the backward pass in place of scores: its "
        f"output, {D} numbers per token and head, and one float32 per row of scores. "
        "It grows with T, scores with its square.",
    )


def changed_rows(module, two, vectors):
    """How many rows of sentence 1's output change when only sentence 2 does."""
    changed = two.clone()
    changed[1] += 1
    again = module(changed, changed, changed)[0]
    return int((again[0] != vectors[0]).any(dim=-1).sum())


def checks(
    mha, torch_mha, tokens_first, x, q, k, v, blocked, two,
    class_vectors, fused_contexts, fused_vectors, torch_vectors, mean_weights,
    head_weights, two_vectors, two_weights, mixed_vectors, mixed_weights,
    wrong_contexts, wrong_vectors,
):  # fmt: skip
    yield (
        "scaled_dot_product_attention gives the class's output, within 1e-5",
        close(fused_vectors, class_vectors),
    )
    yield (
        "nn.MultiheadAttention gives the class's output, within 1e-5",
        close(torch_vectors, class_vectors),
    )
    for role, (name, heads) in enumerate((("queries", q), ("keys", k), ("values", v))):
        last = (role + 1) * WIDTH
        rows = slice(last - HEAD_DIM, last)
        own = x @ torch_mha.in_proj_weight[rows].T + torch_mha.in_proj_bias[rows]
        yield (
            f"{span('row', rows.start, HEAD_DIM)} of in_proj_weight give the last "
            f"head's {name}",
            close(own, heads[:, -1]),
        )
    projected = [getattr(mha, role)(x) for role in ROLES]
    twice, _ = torch_mha(*projected, attn_mask=blocked, need_weights=False)
    yield (
        "x projected before nn.MultiheadAttention gives another output",
        differ(twice, torch_vectors),
    )
    scores = (q @ k.mT / HEAD_DIM**0.5).masked_fill(blocked, -torch.inf)
    yield (
        "average_attn_weights=False gives each head's weights",
        close(head_weights, torch.softmax(scores, dim=-1)),
    )
    yield (
        "nn.MultiheadAttention's default gives their mean over the heads",
        close(mean_weights, head_weights.mean(dim=1)),
    )
    yield (
        "a boolean mask the wrong way round changes both outputs",
        differ(wrong_contexts, fused_contexts) and differ(wrong_vectors, torch_vectors),
    )
    yield (
        "without batch_first the weights of 2 sentences of 4 tokens are (4, 2, 2)",
        equal((shape(mixed_weights), shape(two_weights)), ((4, 2, 2), (2, 4, 4))),
    )
    yield (
        "without batch_first all of sentence 1 changes when only sentence 2 does, with "
        "it nothing",
        equal(
            [
                changed_rows(tokens_first, two, mixed_vectors),
                changed_rows(torch_mha, two, two_vectors),
            ],
            [two.shape[1], 0],
        ),
    )
    floats = [t for t in kept(mha, x[:, :FEW]) if t.is_floating_point()]
    scores = [t.numel() for t in floats if t.shape[-2:] == (FEW, FEW)]
    yield (
        f"measured at T = {FEW}: the class keeps one tensor of H*T*T numbers to train",
        equal(scores, [score_elements(FEW, HEADS)]),
    )
    for dtype in (torch.float32, torch.bfloat16):
        few = [t[:, :, :FEW].to(dtype) for t in (q, k, v)]
        found = kept(lambda q, k, v: fused_attention(q, k, v, is_causal=True), *few)
        formula = fused_bytes(FEW, HEADS, HEAD_DIM, dtype.itemsize)
        yield (
            f"measured at T = {FEW}: the fused form keeps {formula:,} bytes, {dtype}",
            equal(sum(t.nbytes for t in found), formula),
        )
