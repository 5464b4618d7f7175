"""What is said of step 10, and checked."""

from steps.compare import close, true
from steps.pytorch import torch


def checks(mask_simple, row_sums, masked_simple_norm, inputs, T):
    yield (
        f"before renormalising only the last row sums to 1 for sure: {inputs[-1]} "
        "sees everything",
        close(row_sums[-1], torch.ones(1)),
    )
    sums = masked_simple_norm.sum(dim=-1)
    yield "after it every row does", close(sums, torch.ones(T))
    ahead = masked_simple_norm[mask_simple == 0]
    yield (
        f"all {ahead.numel()} weights ahead of a token are exactly 0",
        true(
            (ahead == 0).all(),
            f"largest is {ahead.max().item() if ahead.numel() else 0}",
        ),
    )
