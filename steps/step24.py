"""Step 24: the same attention at GPT-2's size

GPT-2's smallest model is 768 wide, with 12 heads of 64. Here the text, over and over,
makes 64 tokens of that width, whatever sizes the walk has. The class does the same
lines as at any other size; then PyTorch's own two ways get the same weights. Only
shapes are shown: the numbers are compared in the checks. T and D are both 64, so it is
the names of the axes that tell (H, T, D) from (H, T, T).
"""

from steps import attention
from steps.compare import close, differ, equal
from steps.pytorch import nn, seeded, torch
from steps.scale.cost import LENGTHS, fused_bytes, kept, score_elements, size
from steps.walk.order import Table

ALSO_RECORD = (attention.__file__,)  # the class's own lines
SHAPES_ONLY = True
TOKENS, HEADS, HEAD_DIM = 64, 12, 64
WIDTH = HEADS * HEAD_DIM
FEW = 4  # tokens; what is kept for training is measured at this length
fused_attention = nn.functional.scaled_dot_product_attention


def step(token_ids, seed):
    B, T, H, D, width = 1, TOKENS, HEADS, HEAD_DIM, WIDTH
    ids = (token_ids * T)[:T]
    kinds = sorted(set(ids))
    rows = [kinds.index(i) for i in ids]
    with seeded(seed):
        mha = attention.MultiHeadAttention(WIDTH, WIDTH, TOKENS, 0.0, HEADS, True)
        token_vectors = torch.randn(len(kinds), width)[rows]  # (T, H*D)
        position_vectors = torch.randn(T, width)  # (T, H*D)
    x = (token_vectors + position_vectors).view(B, T, width)  # (B, T, H*D)
    class_vectors = mha(x)  # (B, T, H*D)

    layers = mha.W_query, mha.W_key, mha.W_value
    q, k, v = (a(x).view(B, T, H, D).transpose(1, 2) for a in layers)  # (B, H, T, D)
    may_attend = torch.ones(T, T, dtype=torch.bool).tril()  # (T, T)
    fused_contexts = fused_attention(q, k, v, attn_mask=may_attend)  # (B, H, T, D)
    fused_joined = fused_contexts.transpose(1, 2).reshape(B, T, width)  # (B, T, H*D)
    fused_vectors = mha.out_proj(fused_joined)  # (B, T, H*D)

    in_proj_weight = torch.cat([a.weight for a in layers])  # (3*H*D, H*D)
    in_proj_bias = torch.cat([a.bias for a in layers])  # (3*H*D)
    torch_mha = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, device="meta")
    torch_mha.in_proj_weight = nn.Parameter(in_proj_weight)
    torch_mha.in_proj_bias = nn.Parameter(in_proj_bias)
    torch_mha.out_proj = mha.out_proj
    blocked = ~may_attend  # (T, T)
    torch_vectors, _ = torch_mha(x, x, x, attn_mask=blocked, need_weights=False)
    inside = q, k, v, fused_contexts
    masks = may_attend, blocked
    return mha, torch_mha, x, inside, masks, class_vectors, fused_vectors, torch_vectors


def wrong_mask_for_fused(inside, masks):
    """True where blocked, as nn.MultiheadAttention has it, given to
    scaled_dot_product_attention: it takes True for "may attend", so that every token
    attends to later ones only"""
    (q, k, v, _), (_, blocked) = inside, masks
    wrong_contexts = fused_attention(q, k, v, attn_mask=blocked)
    return wrong_contexts


def wrong_mask_for_torch_mha(torch_mha, x, masks):
    """True where a token may attend, given to nn.MultiheadAttention: it takes True for
    "blocked", with the same effect"""
    may_attend, _ = masks
    wrong_vectors, _ = torch_mha(x, x, x, attn_mask=may_attend, need_weights=False)
    return wrong_vectors


def notes():
    H, D = HEADS, HEAD_DIM
    rows = []
    for place, layer in enumerate(("W_query", "W_key", "W_value")):
        at = place * WIDTH
        rows.append((layer, f"{at}-{at + WIDTH - 1}", f"{at}-{at + D - 1}"))
    yield Table(("rows of in_proj_weight", "all heads", "head 1"), tuple(rows))
    yield "The scores of one sentence, and what the fused form keeps instead, to train:"
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
            f"rows {rows.start}-{last - 1} of in_proj_weight: the last head's {name}",
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


if __name__ == "__main__":
    from steps.scale import command
    from steps.walk.command import step as show

    show(__file__, more=command)
