"""What attention scores cost: by formula at any length, and measured at a small one."""

from collections.abc import Callable

from steps.pytorch import torch

LENGTHS = (4, 1024, 4096, 32768, 131072)  # tokens; GPT-2 itself takes up to 1024


def score_elements(T: int, H: int) -> int:
    """Scores of one sentence: one for every pair of tokens, in every head."""
    return H * T * T


def fused_bytes(T: int, H: int, D: int, element: int) -> int:
    """What `scaled_dot_product_attention` keeps to train instead of scores, in bytes.

    Its output, (H, T, D) with `element` bytes a number, and for each row of scores the
    logarithm of the sum of their exponentials, (H, T) in float32. Source: Dao et al.,
    *FlashAttention*, section 3.1.
    """
    return H * T * D * element + H * T * 4


def kept(run: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> list[torch.Tensor]:
    """The tensors that `run(*inputs)` keeps for the backward pass, beside its inputs.

    Measured by autograd itself. Tensors that share one storage are one.
    """
    found: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        found.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    with torch.enable_grad():
        inputs = tuple(tensor.detach().clone().requires_grad_() for tensor in inputs)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            result = run(*inputs)
    for tensor in inputs:
        found.pop(tensor.untyped_storage().data_ptr(), None)
    del result
    return list(found.values())


def size(count: int) -> str:
    """A number of bytes in the largest binary unit that it fills: 3.0 KiB."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            return f"{count / scale:,.1f} {unit}"
    return f"{count} B"
