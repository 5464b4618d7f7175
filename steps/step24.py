"""Step 24: the same attention at GPT-2's size

GPT-2's smallest model is 768 wide, with 12 heads of 64. Here the text, repeated or cut,
makes 64 tokens of that width, whatever sizes the walk has, and PyTorch's own two ways
get the class's weights: scaled_dot_product_attention, the fused form, which keeps no
scores, and nn.MultiheadAttention, whose own weights are left undrawn. The numbers are
compared in the checks. Dropout is 0 here, and gives its input back. T and D are both
64: it is the names of the axes that tell (H, T, D) from (H, T, T).
"""

from steps import attention
from steps.pytorch import nn, seeded, torch, undrawn

ALSO_RECORD = (attention.__file__,)  # the class's own lines
SHAPES_ONLY = True
TOKENS, HEADS, HEAD_DIM = 64, 12, 64
WIDTH = HEADS * HEAD_DIM
fused_attention = nn.functional.scaled_dot_product_attention


def step(token_ids, seed):
    B, T, H, D, width = 1, TOKENS, HEADS, HEAD_DIM, WIDTH
    ids = (token_ids * T)[:T]
    kinds = sorted(set(ids))
    rows = [kinds.index(i) for i in ids]
    with seeded(seed):
        mha = attention.MultiHeadAttention(WIDTH, WIDTH, TOKENS, 0.0, HEADS, True)
        token_vectors = torch.randn(len(kinds), width)[rows]  # (T, width)
        position_vectors = torch.randn(T, width)  # (T, width)
    with undrawn():  # it gets the class's weights below
        torch_mha = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    x = (token_vectors + position_vectors).view(B, T, width)  # (B, T, width)
    class_vectors = mha(x)  # (B, T, width)
    layers = mha.W_query, mha.W_key, mha.W_value
    q, k, v = (a(x).view(B, T, H, D).transpose(1, 2) for a in layers)  # (B, H, T, D)
    may_attend = torch.ones(T, T, dtype=torch.bool).tril()  # (T, T)
    fused_contexts = fused_attention(q, k, v, attn_mask=may_attend)  # (B, H, T, D)
    fused_joined = fused_contexts.transpose(1, 2).reshape(B, T, width)  # (B, T, H*D)
    fused_vectors = mha.out_proj(fused_joined)  # (B, T, width)

    in_proj_weight = torch.cat([a.weight for a in layers])  # (3*H*D, width)
    in_proj_bias = torch.cat([a.bias for a in layers])  # (3*H*D)
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
    attends to later ones only, and the last to none"""
    (q, k, v, _), (_, blocked) = inside, masks
    wrong_contexts = fused_attention(q, k, v, attn_mask=blocked)
    return wrong_contexts


def wrong_mask_for_torch_mha(torch_mha, x, masks):
    """True where a token may attend, given to nn.MultiheadAttention: it takes True for
    "blocked", with the same effect"""
    may_attend, _ = masks
    wrong_vectors, _ = torch_mha(x, x, x, attn_mask=may_attend, need_weights=False)
    return wrong_vectors


if __name__ == "__main__":
    from steps.scale import command
    from steps.walk.command import step as show

    show(__file__, more=command)
