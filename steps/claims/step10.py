"""What is said of step 10, and checked."""

from steps.compare import close, true
from steps.pytorch import torch


def checks(mask_simple, row_sums, masked_simple_norm, inputs, T):
    yield (
        "before renormalising only the last row sums to 1 for sure: "
        f'"{inputs[-1]}" sees every token',
        close(row_sums[-1], torch.ones(1)),
    )
    alive = row_sums[:, 0] > 0  # else the kept weights all underflowed to 0
    norm, kept = masked_simple_norm[alive], mask_simple[alive]
    dead = (
        f" but {T - len(norm)}, whose kept weights are all 0" if len(norm) < T else ""
    )
    yield (
        f"after it every row does{dead}",
        close(norm.sum(dim=-1), torch.ones(len(norm))),
    )
    ahead = norm[kept == 0]
    if T > 1:
        yield (
            f"all {ahead.numel()} weights ahead of a token are exactly 0"
            + (" in those rows" if dead else ""),
            true((ahead == 0).all(), "one is not"),
        )
