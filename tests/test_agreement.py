"""`MultiHeadAttention` against PyTorch's own attention, in float64, to 1e-12."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steps.attention import (
    CausalAttention,
    MultiHeadAttention,
    MultiHeadAttentionWrapper,
)
from steps.pytorch import nn, torch

SIZES = {
    "b": st.integers(1, 3),
    "num_tokens": st.integers(1, 9),
    "num_heads": st.integers(1, 5),
    "head_dim": st.integers(1, 6),
    "qkv_bias": st.booleans(),
    "seed": st.integers(0, 2**31),
}
ROLES = ("W_query", "W_key", "W_value")


@pytest.fixture(autouse=True)
def own_random_state() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        yield


def same(got: torch.Tensor | None, expected: torch.Tensor | None) -> None:
    assert got is not None
    assert expected is not None
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


def made(
    seed: int,
    b: int,
    num_tokens: int,
    d_in: int,
    d_out: int,
    num_heads: int,
    bias: bool,
) -> tuple[MultiHeadAttention, torch.Tensor]:
    """The class and an input for it, both in float64, room for more tokens left."""
    torch.manual_seed(seed)
    mha = MultiHeadAttention(d_in, d_out, num_tokens + 2, 0.0, num_heads, bias).double()
    return mha, torch.randn(b, num_tokens, d_in, dtype=torch.float64)


def backward(out: torch.Tensor) -> None:
    """A gradient that differs from element to element."""
    torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out).mul(
        out
    ).sum().backward()


@settings(deadline=None, max_examples=30)
@given(**SIZES)
def test_as_pytorchs_module(
    b: int, num_tokens: int, num_heads: int, head_dim: int, qkv_bias: bool, seed: int
) -> None:
    width = num_heads * head_dim
    mha, x = made(seed, b, num_tokens, width, width, num_heads, qkv_bias)
    theirs = nn.MultiheadAttention(width, num_heads, batch_first=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([getattr(mha, r).weight for r in ROLES]))
        theirs.in_proj_bias.zero_()
        if qkv_bias:
            theirs.in_proj_bias.copy_(torch.cat([getattr(mha, r).bias for r in ROLES]))
        theirs.out_proj.load_state_dict(mha.out_proj.state_dict())
    blocked = torch.ones(num_tokens, num_tokens, dtype=torch.bool).triu(1)
    ours_in, their_in = x.clone().requires_grad_(), x.clone().requires_grad_()

    ours = mha(ours_in)
    out, _ = theirs(their_in, their_in, their_in, attn_mask=blocked, need_weights=False)
    same(ours, out)

    backward(ours)
    backward(out)
    same(ours_in.grad, their_in.grad)
    weights = torch.cat([getattr(mha, role).weight.grad for role in ROLES])
    same(weights, theirs.in_proj_weight.grad)
    if qkv_bias:
        biases = torch.cat([getattr(mha, role).bias.grad for role in ROLES])
        same(biases, theirs.in_proj_bias.grad)
    same(mha.out_proj.weight.grad, theirs.out_proj.weight.grad)
    same(mha.out_proj.bias.grad, theirs.out_proj.bias.grad)


@settings(deadline=None, max_examples=30)
@given(d_in=st.integers(1, 9), **SIZES)
def test_as_the_fused_function(
    b: int,
    num_tokens: int,
    num_heads: int,
    head_dim: int,
    qkv_bias: bool,
    seed: int,
    d_in: int,
) -> None:
    width = num_heads * head_dim
    mha, x = made(seed, b, num_tokens, d_in, width, num_heads, qkv_bias)
    ours_in, their_in = x.clone().requires_grad_(), x.clone().requires_grad_()
    ours = mha(ours_in)
    backward(ours)
    gradients = [weight.grad for weight in mha.parameters()]
    mha.zero_grad()

    q, k, v = (
        getattr(mha, role)(their_in).unflatten(-1, (num_heads, -1)).transpose(1, 2)
        for role in ROLES
    )
    fused = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    out = mha.out_proj(fused.transpose(1, 2).flatten(2))
    same(ours, out)
    backward(out)
    same(ours_in.grad, their_in.grad)
    for weight, gradient in zip(mha.parameters(), gradients, strict=True):
        same(gradient, weight.grad)


@settings(deadline=None, max_examples=30)
@given(d_in=st.integers(1, 9), **SIZES)
def test_as_the_wrapper_with_stacked_weights(
    b: int,
    num_tokens: int,
    num_heads: int,
    head_dim: int,
    qkv_bias: bool,
    seed: int,
    d_in: int,
) -> None:
    mha, x = made(seed, b, num_tokens, d_in, num_heads * head_dim, num_heads, qkv_bias)
    wrapper = MultiHeadAttentionWrapper(
        d_in, head_dim, num_tokens, 0.0, num_heads, qkv_bias
    ).double()
    stacked = {
        f"{role}.{part}": torch.cat(
            [getattr(getattr(h, role), part) for h in wrapper.heads]
        )
        for role in ROLES
        for part in ("weight", "bias")[: 1 + qkv_bias]
    }
    mha.load_state_dict({**mha.state_dict(), **stacked})
    mha.out_proj = nn.Identity()
    same(mha(x), wrapper(x))


@settings(deadline=None, max_examples=30)
@given(d_in=st.integers(1, 6), **SIZES)
def test_one_head_as_the_fused_function(
    b: int,
    num_tokens: int,
    num_heads: int,
    head_dim: int,
    qkv_bias: bool,
    seed: int,
    d_in: int,
) -> None:
    torch.manual_seed(seed)
    one = CausalAttention(d_in, head_dim, num_tokens, 0.0, qkv_bias).double()
    x = torch.randn(b, num_tokens, d_in, dtype=torch.float64)
    q, k, v = one.W_query(x), one.W_key(x), one.W_value(x)
    fused = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    same(one(x), fused)


@pytest.mark.parametrize("qkv_bias", [False, True])
def test_gradients_are_the_slopes(qkv_bias: bool) -> None:
    """`gradcheck`: of the input and of every weight, by finite differences."""
    mha, x = made(123, 2, 3, 4, 6, 2, qkv_bias)
    names = [name for name, _ in mha.named_parameters()]

    def forward(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        given = dict(zip(names, weights, strict=True))
        return torch.func.functional_call(mha, given, (x,))

    weights = [weight.detach().requires_grad_() for weight in mha.parameters()]
    assert torch.autograd.gradcheck(forward, (x.requires_grad_(), *weights))
