"""Step 19: merge and project

Article: "Collect values, concatenate, then mix"

The transpose brings each token's heads together again, contiguous lays them out side by
side, and view merges the two axes into one. Then out_proj may mix features of all
heads, at each token by itself.
"""

from steps.pytorch import nn, seeded


def step(head_contexts, mha_W_query, mha_W_key, mha_W_value, B, T, H, D, seed):
    # (B, T, H*D)
    joined_contexts = head_contexts.transpose(1, 2).contiguous().view(B, T, H * D)
    d_out = H * D
    with seeded(seed, after=[mha_W_query, mha_W_key, mha_W_value]):
        out_proj = nn.Linear(H * D, d_out, bias=False)  # weight (d_out, H*D)
    mha_context_vectors = out_proj(joined_contexts)  # (B, T, d_out)
    return joined_contexts, out_proj, mha_context_vectors


def wrong_not_contiguous(head_contexts, B, T, H, D):
    """view straight after the transpose, without contiguous"""
    not_laid_out = head_contexts.transpose(1, 2).view(B, T, H * D)  # (B, T, H*D)
    return not_laid_out


def wrong_merge(head_contexts, B, T, H, D):
    """the heads not moved back before the merge: the shape is right and, with several
    heads and tokens, a row holds numbers of several tokens"""
    wrongly_joined = head_contexts.reshape(B, T, H * D)  # (B, T?, H*D?)
    return wrongly_joined


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
