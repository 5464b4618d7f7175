"""What is said of step 24, and checked."""

from steps.attention import ROLES
from steps.compare import close, differ, equal
from steps.pytorch import torch
from steps.scale.cost import LENGTHS, fused_bytes, kept, score_elements, size
from steps.step24 import HEAD_DIM, HEADS, WIDTH, fused_attention
from steps.walk.order import Table
from steps.words import span

FEW = 4  # tokens; what is kept for training is measured at this length


def notes():
    H, D = HEADS, HEAD_DIM
    rows = []
    for place, layer in enumerate(ROLES):
        at = place * WIDTH
        rows.append((layer, span("", at, WIDTH), span("", at, D)))
    yield Table(("rows of in_proj_weight", "all heads", "head 1"), tuple(rows))
    yield (
        "The scores of one sentence, and what the fused form keeps instead for the "
        "backward pass:"
    )
    costs = []
    for T in LENGTHS:
        scores = score_elements(T, H)
        sizes = [scores * 4, scores * 2]  # bytes in float32 and in bfloat16
        sizes += [fused_bytes(T, H, D, 4), fused_bytes(T, H, D, 2)]
        costs.append((f"{T:,}", f"{scores:,}", *map(size, sizes)))
    header = (
        "T",
        "scores (H*T*T)",
        "float32",
        "bfloat16",
        "fused, float32",
        "bfloat16",
    )
    yield Table(header, tuple(costs))
    yield (
        "Scores grow with the square of T. The fused form's share grows with T itself: "
        f"its output, {D} numbers a token and head, and one float32 a row of scores."
    )


def checks(
    mha, torch_mha, x, inside, class_vectors, fused_vectors, torch_vectors,
    wrong_contexts, wrong_vectors,
):  # fmt: skip
    q, k, v, fused_contexts = inside
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
            f"{span('row', rows.start, HEAD_DIM)} of in_proj_weight: the last head's "
            + name,
            close(own, heads[:, -1]),
        )
    yield (
        "a boolean mask the wrong way round changes both outputs",
        differ(wrong_contexts, fused_contexts) and differ(wrong_vectors, torch_vectors),
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
