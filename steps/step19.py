"""Step 19: merge and project

Article: "Collect values, concatenate, then mix"

transpose brings each token's heads together again, contiguous lays them side by side
and view merges the two axes. out_proj may then mix all heads, at each token by itself.

What is said of it, and checked: steps/claims/step19.py
"""

from steps.pytorch import nn, seeded


def step(head_contexts, mha_W_query, mha_W_key, mha_W_value, B, T, H, D, seed):
    # (B, T, H*D)
    joined_contexts = head_contexts.transpose(1, 2).contiguous().view(B, T, H * D)
    d_out = H * D
    with seeded(seed, after=[mha_W_query, mha_W_key, mha_W_value]):
        out_proj = nn.Linear(H * D, d_out, bias=False)  # weight (d_out, H*D)
    mha_context_vectors = out_proj(joined_contexts)  # (B, T, d_out)
    return locals()


def wrong_not_contiguous(head_contexts, B, T, H, D):
    """view straight after the transpose, without contiguous

    A view merges two axes only where one stride spans both. reshape would copy by
    itself.
    """
    not_laid_out = head_contexts.transpose(1, 2).view(B, T, H * D)  # (B, T, H*D)
    return locals()


def wrong_merge(head_contexts, B, T, H, D):
    """the heads not moved back before the merge

    The shape is right. With several heads and tokens a row mixes those of several.
    """
    wrongly_joined = head_contexts.reshape(B, T, H * D)  # (B, T?, H*D?)
    return locals()


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
