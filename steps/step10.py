"""Step 10: causal mask, the long way

A token must not look ahead. The long way: compute all weights, set the future ones to
0, and divide each row by its sum again.

What is said of it, and checked: steps/claims/step10.py
"""

from steps.pytorch import torch


def step(x, W_query, W_key, T, D):
    queries = x @ W_query  # (T, D)
    keys = x @ W_key  # (T, D)
    attn_scores = queries @ keys.T  # (T, T)
    attn_weights = torch.softmax(attn_scores / D**0.5, dim=-1)  # (T, T)
    mask_simple = torch.tril(torch.ones(T, T))  # (T, T)
    masked_simple = attn_weights * mask_simple  # (T, T)
    row_sums = masked_simple.sum(dim=-1, keepdim=True)  # (T, 1)
    masked_simple_norm = masked_simple / row_sums  # (T, T)
    return locals()


if __name__ == "__main__":
    from steps.walk.command import step as show

    show(__file__)
