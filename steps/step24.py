"""Step 24: the same attention at GPT-2's size

GPT-2's smallest model is 768 wide, with 12 heads of 64. Here the text, over and over, makes 64
tokens of that width, whatever sizes the walk has. The class does the same lines as at any other
size; then PyTorch's own two ways get the same weights. Only shapes are shown: the numbers are
compared in the checks.
"""

from steps import attention
from steps.compare import close, differ, equal
from steps.pytorch import nn, seeded, torch
from steps.scale.cost import LENGTHS, fused_bytes, kept, score_elements, size
from steps.walk.order import Table

ALSO_RECORD = (attention.__file__,)  # the class's own lines
SHAPES_ONLY = True
TOKENS, HEADS, HEAD_DIM = 64, 12, 64
SMALL = 4  # tokens; what is kept is measured at this length
fused_attention = nn.functional.scaled_dot_product_attention


def step(token_ids, seed):
    B, T, H, D = 1, TOKENS, HEADS, HEAD_DIM
    ids = (token_ids * T)[:T]
    kinds = sorted(set(ids))
    with seeded(seed):
        gpt2_mha = attention.MultiHeadAttention(H * D, H * D, T, 0.0, H, True)  # weight (H*D, H*D)
        token_vectors = torch.randn(len(kinds), H * D)[[kinds.index(i) for i in ids]]  # (T, H*D)
        position_vectors = torch.randn(T, H * D)  # (T, H*D)
    x_gpt2 = (token_vectors + position_vectors).view(B, T, H * D)  # (B, T, H*D)
    class_vectors = gpt2_mha(x_gpt2)  # (B, T, H*D)

    layers = gpt2_mha.W_query, gpt2_mha.W_key, gpt2_mha.W_value
    q, k, v = (layer(x_gpt2).view(B, T, H, D).transpose(1, 2) for layer in layers)  # (B, H, T, D)
    may_attend = torch.ones(T, T, dtype=torch.bool).tril()  # (T, T)
    fused_contexts = fused_attention(q, k, v, attn_mask=may_attend)  # (B, H, T, D)
    fused_joined = fused_contexts.transpose(1, 2).reshape(B, T, H * D)  # (B, T, H*D)
    fused_vectors = gpt2_mha.out_proj(fused_joined)  # (B, T, H*D)

    in_proj_weight = torch.cat([layer.weight for layer in layers])  # (3*H*D, H*D)
    in_proj_bias = torch.cat([layer.bias for layer in layers])  # (3*H*D)
    torch_mha = nn.MultiheadAttention(H * D, H, batch_first=True, device="meta")  # no draw
    torch_mha.in_proj_weight = nn.Parameter(in_proj_weight)
    torch_mha.in_proj_bias = nn.Parameter(in_proj_bias)
    torch_mha.out_proj = gpt2_mha.out_proj
    blocked = ~may_attend  # (T, T)
    torch_vectors, _ = torch_mha(x_gpt2, x_gpt2, x_gpt2, attn_mask=blocked, need_weights=False)
    return gpt2_mha, x_gpt2, q, k, v, torch_mha, may_attend, blocked, class_vectors, fused_contexts, fused_vectors, torch_vectors


def wrong_mask_for_fused(q, k, v, blocked):
    """True where blocked, as nn.MultiheadAttention has it, given to
    scaled_dot_product_attention: it takes True for "may attend", so that every token
    attends to later ones only"""
    wrong_contexts = fused_attention(q, k, v, attn_mask=blocked)
    return wrong_contexts


def wrong_mask_for_torch_mha(torch_mha, x_gpt2, may_attend):
    """True where it may attend, given to nn.MultiheadAttention: it takes True for
    "blocked", with the same effect"""
    wrong_vectors, _ = torch_mha(x_gpt2, x_gpt2, x_gpt2, attn_mask=may_attend, need_weights=False)
    return wrong_vectors


def notes(gpt2_mha, torch_mha):
    H, D, width = HEADS, HEAD_DIM, HEADS * HEAD_DIM
    rows = []
    for place, layer in enumerate(("W_query", "W_key", "W_value")):
        first = place * width
        rows.append((layer, f"{first}-{first + width - 1}", f"{first}-{first + D - 1}"))
    yield Table(("rows of in_proj_weight and in_proj_bias", "all heads", "head 1"), tuple(rows))
    yield "The scores of one sentence, and what the fused form keeps for training instead of them:"
    header = ("T", "scores (H*T*T)", "float32", "bfloat16", "fused float32", "fused bfloat16")
    cost = []
    for T in LENGTHS:
        scores = score_elements(T, H)
        bytes_ = (scores * 4, scores * 2, fused_bytes(T, H, D, 4), fused_bytes(T, H, D, 2))
        cost.append((f"{T:,}", f"{scores:,}", *map(size, bytes_)))
    yield Table(header, tuple(cost))
    yield (
        f"Scores grow with the square of T, the fused form's share with T itself. It keeps its "
        f"output, {D} numbers a token and head, and one float32 a row of scores."
    )


def checks(
    gpt2_mha, x_gpt2, q, k, v, torch_mha, class_vectors, fused_vectors, torch_vectors,
    fused_contexts, wrong_contexts, wrong_vectors,
):
    H, D, width = HEADS, HEAD_DIM, HEADS * HEAD_DIM
    yield (
        "scaled_dot_product_attention gives the class's output, within 1e-5",
        close(fused_vectors, class_vectors),
    )
    yield (
        "nn.MultiheadAttention gives the class's output, within 1e-5",
        close(torch_vectors, class_vectors),
    )
    for name, role, heads in (("queries", 0, q), ("keys", 1, k), ("values", 2, v)):
        rows = slice(role * width + (H - 1) * D, (role + 1) * width)
        own = x_gpt2 @ torch_mha.in_proj_weight[rows].T + torch_mha.in_proj_bias[rows]
        yield (
            f"rows {rows.start}-{rows.stop - 1} of in_proj_weight make the {name} of head {H}",
            close(own, heads[:, H - 1]),
        )
    yield (
        "a boolean mask the wrong way round changes both outputs",
        differ(wrong_contexts, fused_contexts) and differ(wrong_vectors, torch_vectors),
    )
    x = x_gpt2[:, :SMALL]
    scores = [t for t in kept(gpt2_mha, x) if t.is_floating_point() and t.shape[-2:] == (SMALL, SMALL)]
    yield (
        f"measured at T = {SMALL}: training keeps one tensor of the size of the scores",
        equal([t.numel() for t in scores], [score_elements(SMALL, H)]),
    )
    for dtype in (torch.float32, torch.bfloat16):
        few = [t[:, :, :SMALL].to(dtype) for t in (q, k, v)]
        fused = kept(lambda q, k, v: fused_attention(q, k, v, is_causal=True), *few)
        yield (
            f"measured at T = {SMALL}: the fused form keeps what the table's formula says, {dtype}",
            equal(sum(t.nbytes for t in fused), fused_bytes(SMALL, H, D, dtype.itemsize)),
        )


if __name__ == "__main__":
    from steps.scale import command
    from steps.walk.command import step as show

    show(__file__, more=command)
