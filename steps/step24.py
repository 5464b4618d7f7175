"""Step 24: the same attention at GPT-2's size

GPT-2's smallest model is 768 wide, with 12 heads of 64. Here the text, repeated or cut,
makes 64 tokens of that width, whatever sizes the walk has. PyTorch's own two ways get
the class's weights: scaled_dot_product_attention, the fused form, which keeps no
scores, and nn.MultiheadAttention. There is no dropout.

What is said of it, and checked: steps/claims/step24.py
"""

from steps.attention import MultiHeadAttention
from steps.pytorch import loaded, nn, seeded, torch, undrawn

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
        mha = MultiHeadAttention(WIDTH, WIDTH, TOKENS, 0.0, HEADS, qkv_bias=True)
        token_vectors = torch.randn(len(kinds), width)[rows]  # (T, width)
        position_vectors = torch.randn(T, width)  # (T, width)
    x = (token_vectors + position_vectors).unsqueeze(0)  # (B, T, width)
    class_vectors = mha(x)  # (B, T, width)

    layers = mha.W_query, mha.W_key, mha.W_value
    q, k, v = (a(x).view(B, T, H, D).transpose(1, 2) for a in layers)  # (B, H, T, D)
    may_attend = torch.ones(T, T).tril().bool()  # (T, T)
    fused_contexts = fused_attention(q, k, v, attn_mask=may_attend)  # (B, H, T, D)
    fused_joined = fused_contexts.transpose(1, 2).reshape(B, T, width)  # (B, T, H*D)
    fused_vectors = mha.out_proj(fused_joined)  # (B, T, width)

    with undrawn():  # it gets the class's weights
        torch_mha = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    in_proj_weight = torch.cat([a.weight for a in layers])  # (3*H*D, width)
    torch_mha.in_proj_weight = nn.Parameter(in_proj_weight)
    torch_mha.in_proj_bias = nn.Parameter(torch.cat([a.bias for a in layers]))
    torch_mha.out_proj = mha.out_proj
    blocked = ~may_attend  # (T, T)
    torch_vectors, mean_weights = torch_mha(x, x, x, attn_mask=blocked)
    # (B, H, T, T)
    _, head_weights = torch_mha(x, x, x, attn_mask=blocked, average_attn_weights=False)

    two = x[:, :8].view(2, 4, width)  # (2, 4, width)
    two_vectors, two_weights = torch_mha(two, two, two)
    return locals()


def wrong_mask_for_fused(q, k, v, blocked):
    """nn.MultiheadAttention's mask, given to scaled_dot_product_attention

    It takes True for "may attend": every token attends to later ones only, and the last
    to none.
    """
    wrong_contexts = fused_attention(q, k, v, attn_mask=blocked)
    return locals()


def wrong_mask_for_torch_mha(torch_mha, x, may_attend):
    """scaled_dot_product_attention's mask, given to nn.MultiheadAttention

    It takes True for "blocked", with the same effect.
    """
    wrong_vectors, _ = torch_mha(x, x, x, attn_mask=may_attend, need_weights=False)
    return locals()


def wrong_batch_axis(torch_mha, two):
    """a batch given to nn.MultiheadAttention without batch_first

    It reads (B, T) as (T, B): at each place the sentences attend to each other.
    """
    with undrawn():  # it gets the same weights
        tokens_first = nn.MultiheadAttention(WIDTH, HEADS)
    loaded(tokens_first, torch_mha.state_dict())
    mixed_vectors, mixed_weights = tokens_first(two, two, two)
    return locals()


if __name__ == "__main__":
    from steps.scale import command
    from steps.walk.command import step as show

    show(__file__, more=command)
