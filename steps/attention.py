"""The attention classes of the walk, with the constructor signatures of chapter 3.

Each draws its weights in the chapter's order, so that `torch.manual_seed(123)` before
making one gives the chapter's numbers, and names them as the chapter does, so that a
`state_dict` moves between the two. Source: Raschka, *Build a Large Language Model (From
Scratch)*, sections 3.4 to 3.6; the code is this project's own.

Sizes: b sequences of num_tokens tokens; a token has d_in features coming in and d_out
going out. The walk holds the comments of `MultiHeadAttention.forward`, such as
`# (b, num_tokens, d_out)`, against the tensors; one over several lines that make the
same call is of them all. What an input must be stands over each `forward`.

The mask holds truth values: True where a query may not look, ahead of itself. A change
of the module's dtype leaves them alone, and a stored mask of ones and zeros loads into
them.

    >>> mha = MultiHeadAttention(4, 6, context_length=8, dropout=0.0, num_heads=2)
    >>> mha(torch.zeros(1, 5, 4)).shape
    torch.Size([1, 5, 6])
"""

from steps.limits import check_dropout, check_sizes, takes
from steps.pytorch import nn, torch

ROLES = ("W_query", "W_key", "W_value")  # what each class calls its projections


class SelfAttention_v1(nn.Module):
    """One head, no mask, weights as plain parameters (section 3.4.2).

    forward: (num_tokens, d_in) -> (num_tokens, d_out).

    Raises TypeError for a size that is no whole number, ValueError: a size below 1; an
    input of another rank or width.
    """

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        check_sizes(d_in=d_in, d_out=d_out)
        self.W_query = nn.Parameter(torch.rand(d_in, d_out))
        self.W_key = nn.Parameter(torch.rand(d_in, d_out))
        self.W_value = nn.Parameter(torch.rand(d_in, d_out))
        self.d_in = d_in

    @takes("(num_tokens, d_in)")
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        queries = x @ self.W_query  # (num_tokens, d_out)
        keys = x @ self.W_key  # (num_tokens, d_out)
        values = x @ self.W_value  # (num_tokens, d_out)
        attn_scores = queries @ keys.T  # (num_tokens, num_tokens)
        attn_weights = torch.softmax(attn_scores / keys.shape[-1] ** 0.5, dim=-1)
        context_vec = attn_weights @ values  # (num_tokens, d_out)
        return context_vec


class SelfAttention_v2(nn.Module):
    """One head, no mask, weights in linear layers (section 3.4.2).

    A linear layer stores its weight as (d_out, d_in), the transpose of v1's parameter.

    forward: (num_tokens, d_in) -> (num_tokens, d_out).

    Raises TypeError for a size that is no whole number, ValueError: a size below 1; an
    input of another rank or width.
    """

    def __init__(self, d_in: int, d_out: int, qkv_bias: bool = False) -> None:
        super().__init__()
        check_sizes(d_in=d_in, d_out=d_out)
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.d_in = d_in

    @takes("(num_tokens, d_in)")
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        queries = self.W_query(x)  # (num_tokens, d_out)
        keys = self.W_key(x)  # (num_tokens, d_out)
        values = self.W_value(x)  # (num_tokens, d_out)
        attn_scores = queries @ keys.T  # (num_tokens, num_tokens)
        attn_weights = torch.softmax(attn_scores / keys.shape[-1] ** 0.5, dim=-1)
        context_vec = attn_weights @ values  # (num_tokens, d_out)
        return context_vec


class CausalAttention(nn.Module):
    """One head with a causal mask and dropout, for batches (section 3.5.3).

    forward: (b, num_tokens, d_in) -> (b, num_tokens, d_out), num_tokens at most
    context_length.

    Raises TypeError for a size that is no whole number, ValueError: a size below 1;
    a dropout outside 0 to 1; an input of another
    rank or width, or longer than context_length.
    """

    mask: torch.Tensor

    def __init__(
        self,
        d_in: int,
        d_out: int,
        context_length: int,
        dropout: float,
        qkv_bias: bool = False,
    ) -> None:
        super().__init__()
        check_sizes(d_in=d_in, d_out=d_out, context_length=context_length)
        check_dropout(dropout)
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.dropout = nn.Dropout(dropout)
        ones = torch.ones(context_length, context_length, dtype=torch.bool)
        self.register_buffer("mask", ones.triu(diagonal=1))
        self.d_in = d_in
        self.context_length = context_length

    @takes("(b, num_tokens, d_in)")
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, num_tokens, d_in = x.shape
        queries = self.W_query(x)  # (b, num_tokens, d_out)
        keys = self.W_key(x)  # (b, num_tokens, d_out)
        values = self.W_value(x)  # (b, num_tokens, d_out)
        attn_scores = queries @ keys.transpose(1, 2)  # (b, num_tokens, num_tokens)
        attn_scores = attn_scores / keys.shape[-1] ** 0.5
        blocked = self.mask[:num_tokens, :num_tokens]  # (num_tokens, num_tokens)
        attn_scores = attn_scores.masked_fill(blocked, -torch.inf)
        attn_weights = torch.softmax(attn_scores, dim=-1)
        del attn_scores  # as large as the weights, and of no more use
        attn_weights = self.dropout(attn_weights)
        context_vec = attn_weights @ values  # (b, num_tokens, d_out)
        return context_vec


class MultiHeadAttentionWrapper(nn.Module):
    """Several single heads, one after the other, their outputs side by side (3.6.1).

    d_out is the width of one head here: the output is num_heads * d_out wide.

    forward: (b, num_tokens, d_in) -> (b, num_tokens, num_heads * d_out), num_tokens at
    most context_length.

    Raises what `CausalAttention` raises, and ValueError for num_heads below 1.
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
        check_sizes(num_heads=num_heads)
        self.heads = nn.ModuleList(
            CausalAttention(d_in, d_out, context_length, dropout, qkv_bias)
            for _ in range(num_heads)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([head(x) for head in self.heads], dim=-1)


class MultiHeadAttention(nn.Module):
    """All heads at once, split out of one projection per role (section 3.6.2).

    d_out is the width of all heads together here; each is head_dim = d_out / num_heads
    wide.

    forward: (b, num_tokens, d_in) -> (b, num_tokens, d_out), num_tokens at most
    context_length.

    Raises TypeError for a size that is no whole number, ValueError: a size below 1;
    d_out not divisible by num_heads; a dropout
    outside 0 to 1; an input of another rank or width, or longer than context_length.

    torch.export: a token axis that is to vary takes sizes up to context_length - 1, as
    `Dim("num_tokens", max=context_length - 1)`; it holds a slice apart from the whole.
    """

    mask: torch.Tensor

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
        check_sizes(d_in=d_in, d_out=d_out, context_length=context_length)
        check_sizes(num_heads=num_heads)
        if d_out % num_heads != 0:
            raise ValueError(
                f"d_out must be divisible by num_heads, and {d_out} is not divisible "
                f"by {num_heads}"
            )
        check_dropout(dropout)
        self.d_in = d_in
        self.d_out = d_out
        self.num_heads = num_heads
        self.head_dim = d_out // num_heads
        self.context_length = context_length
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        ones = torch.ones(context_length, context_length, dtype=torch.bool)
        self.register_buffer("mask", ones.triu(diagonal=1))

    @takes("(b, num_tokens, d_in)")
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, num_tokens, d_in = x.shape
        num_heads, head_dim = self.num_heads, self.head_dim

        queries = self.W_query(x)  # (b, num_tokens, d_out)
        keys = self.W_key(x)  # (b, num_tokens, d_out)
        values = self.W_value(x)  # (b, num_tokens, d_out)

        # (b, num_tokens, num_heads, head_dim)
        queries_by_token = queries.view(b, num_tokens, num_heads, head_dim)
        keys_by_token = keys.view(b, num_tokens, num_heads, head_dim)
        values_by_token = values.view(b, num_tokens, num_heads, head_dim)

        # (b, num_heads, num_tokens, head_dim)
        head_queries = queries_by_token.transpose(1, 2)
        head_keys = keys_by_token.transpose(1, 2)
        head_values = values_by_token.transpose(1, 2)

        # (b, num_heads, num_tokens, num_tokens)
        attn_scores = head_queries @ head_keys.transpose(2, 3)
        attn_scores = attn_scores / head_dim**0.5
        # (num_tokens, num_tokens)
        blocked = self.mask[:num_tokens, :num_tokens]
        attn_scores = attn_scores.masked_fill(blocked, -torch.inf)
        attn_weights = torch.softmax(attn_scores, dim=-1)
        del attn_scores  # as large as the weights, and of no more use
        attn_weights = self.dropout(attn_weights)

        # (b, num_heads, num_tokens, head_dim)
        head_contexts = attn_weights @ head_values
        del attn_weights
        # (b, num_tokens, num_heads, head_dim)
        contexts_by_token = head_contexts.transpose(1, 2).contiguous()
        # (b, num_tokens, d_out)
        joined_contexts = contexts_by_token.view(b, num_tokens, self.d_out)
        context_vec = self.out_proj(joined_contexts)  # (b, num_tokens, d_out)
        return context_vec
