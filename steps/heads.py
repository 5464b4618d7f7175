"""Attention heads twice over: packed, by the steps' own code, and one at a time."""

from steps import step15, step16, step17
from steps.pytorch import nn, torch


def packed_heads(
    x_batch: torch.Tensor, query: nn.Linear, key: nn.Linear, value: nn.Linear, H: int
) -> torch.Tensor:
    """Steps 15 to 17 on another input, no dropout: (B, T, d_in) -> (B, H, T, D)."""
    B, T, _ = x_batch.shape
    D = query.out_features // H
    made = step15.step(x_batch, query, key, value, B, T, H, D)
    scaled = step16.step(made["head_queries"], made["head_keys"], D)["scaled"]
    head_attention_weights = step17.step(scaled, T)["head_attention_weights"]
    return head_attention_weights @ made["head_values"]


def separate_heads(
    x_batch: torch.Tensor, query: nn.Linear, key: nn.Linear, value: nn.Linear, H: int
) -> torch.Tensor:
    """Each head from its own weight rows, with no view and no transpose of heads.

    (B, T, d_in) -> (B, H, T, D). The causal mask is put on after the exponential here,
    the long way of step 10, so that no line is shared with the packed form.
    """
    D = query.out_features // H
    heads = []
    for head in range(H):
        rows = slice(head * D, (head + 1) * D)
        q = x_batch @ query.weight[rows].T
        k = x_batch @ key.weight[rows].T
        v = x_batch @ value.weight[rows].T
        scores = torch.einsum("bqd,bkd->bqk", q, k) / D**0.5
        weights = torch.exp(scores - scores.amax(dim=-1, keepdim=True)).tril()
        heads.append(weights @ v / weights.sum(dim=-1, keepdim=True))
    return torch.stack(heads, dim=1)
