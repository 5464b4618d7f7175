"""The attention classes of the walk, with the constructor signatures of chapter 3.

Each has the chapter's parameters in the chapter's order of drawing, so that
`torch.manual_seed(123)` before making one gives the chapter's numbers. Source: Raschka,
*Build a Large Language Model (From Scratch)*, sections 3.4 to 3.6; the code is this
project's own.

Sizes: b sequences of num_tokens tokens, d_in features a token coming in, d_out going out.
"""

from steps.pytorch import nn, torch


class SelfAttention_v1(nn.Module):
    """One head, no mask, weights as plain parameters (section 3.4.2).

    forward: (num_tokens, d_in) -> (num_tokens, d_out).
    Raises ValueError for an input of another rank or width.
    """

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.W_query = nn.Parameter(torch.rand(d_in, d_out))
        self.W_key = nn.Parameter(torch.rand(d_in, d_out))
        self.W_value = nn.Parameter(torch.rand(d_in, d_out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_input(x, rank=2, d_in=self.W_query.shape[0])
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
    Raises ValueError for an input of another rank or width.
    """

    def __init__(self, d_in: int, d_out: int, qkv_bias: bool = False) -> None:
        super().__init__()
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_input(x, rank=2, d_in=self.W_query.in_features)
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
    context_length. Raises ValueError for an input of another rank or width, or longer.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        context_length: int,
        dropout: float,
        qkv_bias: bool = False,
    ) -> None:
        super().__init__()
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", future_mask(context_length))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_input(x, 3, self.W_query.in_features, self.mask.shape[0])
        num_tokens = x.shape[1]
        queries = self.W_query(x)  # (b, num_tokens, d_out)
        keys = self.W_key(x)  # (b, num_tokens, d_out)
        values = self.W_value(x)  # (b, num_tokens, d_out)
        attn_scores = queries @ keys.transpose(1, 2)  # (b, num_tokens, num_tokens)
        attn_scores = attn_scores / keys.shape[-1] ** 0.5
        blocked = self.mask.bool()[:num_tokens, :num_tokens]
        attn_scores = attn_scores.masked_fill(blocked, -torch.inf)
        attn_weights = torch.softmax(attn_scores, dim=-1)
        context_vec = self.dropout(attn_weights) @ values  # (b, num_tokens, d_out)
        return context_vec


class MultiHeadAttentionWrapper(nn.Module):
    """Several single heads, one after the other, their outputs side by side (3.6.1).

    d_out is the width of one head here: the output is num_heads * d_out wide.

    forward: (b, num_tokens, d_in) -> (b, num_tokens, num_heads * d_out).
    Raises what `CausalAttention` raises.
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
        self.heads = nn.ModuleList(
            CausalAttention(d_in, d_out, context_length, dropout, qkv_bias)
            for _ in range(num_heads)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([head(x) for head in self.heads], dim=-1)


class MultiHeadAttention(nn.Module):
    """All heads at once, split out of one projection per role (section 3.6.2).

    d_out is the width of all heads together here; each has head_dim = d_out / num_heads.

    forward: (b, num_tokens, d_in) -> (b, num_tokens, d_out), num_tokens at most
    context_length. Raises ValueError when num_heads does not divide d_out, and for an
    input of another rank or width, or longer.
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
        if num_heads < 1 or d_out % num_heads != 0:
            raise ValueError(f"d_out ({d_out}) must be divisible by num_heads ({num_heads})")
        self.d_out = d_out
        self.num_heads = num_heads
        self.head_dim = d_out // num_heads
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", future_mask(context_length))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_input(x, 3, self.W_query.in_features, self.mask.shape[0])
        b, num_tokens, d_in = x.shape
        num_heads, head_dim, d_out = self.num_heads, self.head_dim, self.d_out

        queries = self.W_query(x)  # (b, num_tokens, d_out)
        keys = self.W_key(x)  # (b, num_tokens, d_out)
        values = self.W_value(x)  # (b, num_tokens, d_out)

        split = (b, num_tokens, num_heads, head_dim)
        queries_by_token = queries.view(split)  # (b, num_tokens, num_heads, head_dim)
        keys_by_token = keys.view(split)  # (b, num_tokens, num_heads, head_dim)
        values_by_token = values.view(split)  # (b, num_tokens, num_heads, head_dim)

        head_queries = queries_by_token.transpose(1, 2)  # (b, num_heads, num_tokens, head_dim)
        head_keys = keys_by_token.transpose(1, 2)  # (b, num_heads, num_tokens, head_dim)
        head_values = values_by_token.transpose(1, 2)  # (b, num_heads, num_tokens, head_dim)

        # One name for the scores, so that each form is freed as the next is made.
        attn_scores = head_queries @ head_keys.transpose(2, 3)  # (b, num_heads, num_tokens, num_tokens)
        attn_scores = attn_scores / head_dim**0.5
        blocked = self.mask.bool()[:num_tokens, :num_tokens]  # (num_tokens, num_tokens)
        attn_scores = attn_scores.masked_fill(blocked, -torch.inf)
        attn_weights = torch.softmax(attn_scores, dim=-1)
        attn_weights = self.dropout(attn_weights)

        head_contexts = attn_weights @ head_values  # (b, num_heads, num_tokens, head_dim)
        joined_contexts = head_contexts.transpose(1, 2).contiguous().view(b, num_tokens, d_out)
        context_vec = self.out_proj(joined_contexts)  # (b, num_tokens, d_out)
        return context_vec


def future_mask(context_length: int) -> torch.Tensor:
    """(context_length, context_length): 1 where a query may not look, ahead of itself."""
    return torch.triu(torch.ones(context_length, context_length), diagonal=1)


def check_input(x: torch.Tensor, rank: int, d_in: int, context_length: int | None = None) -> None:
    """Refuse an input that the layers would refuse less clearly, or not at all."""
    axes = "(num_tokens, d_in)" if rank == 2 else "(b, num_tokens, d_in)"
    if x.dim() != rank:
        raise ValueError(f"the input must be {axes}, got shape {tuple(x.shape)}")
    if x.shape[-1] != d_in:
        raise ValueError(f"the input must have d_in = {d_in} features, got {x.shape[-1]}")
    if context_length is not None and x.shape[1] > context_length:
        raise ValueError(
            f"the input has {x.shape[1]} tokens, more than context_length = {context_length}"
        )
