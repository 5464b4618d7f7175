"""A class with one planted fault, for step 23: every shape in it is right.

The split asks `view` for the heads' shape at once. What mends it is at the end, for the
step to run.
"""

from steps.pytorch import nn, torch


class PlantedAttention(nn.Module):
    """The constructor of `steps.attention.MultiHeadAttention`, and its shapes.

    forward: (b, num_tokens, d_in) -> (b, num_tokens, d_out).
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        context_length: int,
        dropout: float,
        num_heads: int,
        qkv_bias: bool = False,
    ) -> None:
        super().__init__()
        assert d_out % num_heads == 0, "d_out must be divisible by num_heads"
        self.d_out, self.num_heads = d_out, num_heads
        self.head_dim = d_out // num_heads
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        self.mask: torch.Tensor
        mask = torch.triu(torch.ones(context_length, context_length), diagonal=1)
        self.register_buffer("mask", mask.bool())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, num_tokens, _ = x.shape
        H, D = self.num_heads, self.head_dim
        head_queries = self.W_query(x).view(b, H, num_tokens, D)
        head_keys = self.W_key(x).view(b, H, num_tokens, D)
        head_values = self.W_value(x).view(b, H, num_tokens, D)
        attn_scores = head_queries @ head_keys.transpose(2, 3)
        attn_scores = attn_scores / self.head_dim**0.5
        blocked = self.mask[:num_tokens, :num_tokens]
        attn_scores = attn_scores.masked_fill(blocked, -torch.inf)
        attn_weights = self.dropout(torch.softmax(attn_scores, dim=-1))
        head_contexts = attn_weights @ head_values
        head_contexts = head_contexts.transpose(1, 2)
        joined_contexts = head_contexts.reshape(b, num_tokens, self.d_out)
        return self.out_proj(joined_contexts)


# Lines of this file and what they must read.
AS_HEADS = ".view(b, num_tokens, H, D).transpose(1, 2)"
REPAIR = {
    41: f"        head_queries = self.W_query(x){AS_HEADS}",
    42: f"        head_keys = self.W_key(x){AS_HEADS}",
    43: f"        head_values = self.W_value(x){AS_HEADS}",
}


def mended() -> type[nn.Module]:
    """The planted class made from this file with the lines of REPAIR put in."""
    with open(__file__, encoding="utf-8") as file:
        lines = file.read().split("\n")
    for line, new in REPAIR.items():
        lines[line - 1] = new
    names: dict[str, type[nn.Module]] = {"__name__": __name__}  # type: ignore[dict-item]
    exec(compile("\n".join(lines), __file__, "exec"), names)
    return names["PlantedAttention"]
