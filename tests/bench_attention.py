"""Speed and memory of `MultiHeadAttention`, as ratios of runs made side by side.

The measure is the most direct transcription of the same steps: no checks, and nothing
named that need not be. PyTorch's own two ways stand beside it.

    python tests/bench_attention.py
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

os.environ.setdefault("KINETO_LOG_LEVEL", "9")  # the profiler reports its own start
if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from steps.attention import MultiHeadAttention
from steps.pytorch import nn, torch

# b, num_tokens, d_in, d_out, num_heads; rounds at most, and forward calls a round
SIZES = (
    (1, 4, 6, 6, 2, 400, 50),
    (8, 1024, 768, 768, 12, 15, 1),
)
BUDGET = 45.0  # seconds of rounds a size; three rounds are made in any case


class Direct(nn.Module):
    """The same steps as directly as can be, with another module's layers."""

    mask: torch.Tensor

    def __init__(self, mha: MultiHeadAttention) -> None:
        super().__init__()
        self.H, self.D = mha.num_heads, mha.head_dim
        self.W_query, self.W_key, self.W_value = mha.W_query, mha.W_key, mha.W_value
        self.out_proj, self.dropout = mha.out_proj, mha.dropout
        self.register_buffer("mask", mha.mask)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        H, D = self.H, self.D
        q = self.W_query(x).view(b, t, H, D).transpose(1, 2)
        k = self.W_key(x).view(b, t, H, D).transpose(1, 2)
        v = self.W_value(x).view(b, t, H, D).transpose(1, 2)
        w = q @ k.transpose(2, 3)
        w = w / D**0.5
        w = w.masked_fill(self.mask[:t, :t], -torch.inf)
        w = torch.softmax(w, dim=-1)
        w = self.dropout(w)
        out = (w @ v).transpose(1, 2).contiguous().view(b, t, H * D)
        return self.out_proj(out)


class Fused(Direct):
    """The same layers around `scaled_dot_product_attention`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        H, D = self.H, self.D
        q = self.W_query(x).view(b, t, H, D).transpose(1, 2)
        k = self.W_key(x).view(b, t, H, D).transpose(1, 2)
        v = self.W_value(x).view(b, t, H, D).transpose(1, 2)
        out = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out_proj(out.transpose(1, 2).contiguous().view(b, t, H * D))


class PyTorch(nn.Module):
    """`nn.MultiheadAttention`, which wants d_in = d_out."""

    blocked: torch.Tensor

    def __init__(self, mha: MultiHeadAttention) -> None:
        super().__init__()
        self.mha = nn.MultiheadAttention(mha.d_out, mha.num_heads, batch_first=True)
        self.register_buffer("blocked", mha.mask)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        blocked = self.blocked[: x.shape[1], : x.shape[1]]
        return self.mha(x, x, x, attn_mask=blocked, need_weights=False, is_causal=True)[
            0
        ]


def peak(module: nn.Module, x: torch.Tensor) -> int:
    """The most bytes that one forward call holds at a time, beside its input."""
    cpu = [torch.profiler.ProfilerActivity.CPU]
    with torch.no_grad():
        module(x)
        with torch.profiler.profile(activities=cpu, profile_memory=True) as profile:
            module(x)
    kineto = profile.profiler.kineto_results  # type: ignore[union-attr]
    changes = [event for event in kineto.events() if event.name() == "[memory]"]
    now = most = 0
    for change in sorted(changes, key=lambda event: event.start_ns()):
        now += change.nbytes()
        most = max(most, now)
    return most


def seconds(module: nn.Module, x: torch.Tensor, calls: int) -> float:
    """Of one forward call, the mean of `calls` of them."""
    start = perf_counter()
    for _ in range(calls):
        module(x)
    return (perf_counter() - start) / calls


def lines() -> Iterator[str]:
    """The table: medians over the rounds; every round runs all four, in turn."""
    for b, num_tokens, d_in, d_out, num_heads, rounds, calls in SIZES:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(123)
            mha = MultiHeadAttention(d_in, d_out, num_tokens, 0.0, num_heads)
            x = torch.randn(b, num_tokens, d_in)
            ways = {
                "direct transcription": Direct(mha),
                "MultiHeadAttention": mha,
                "scaled_dot_product_attention": Fused(mha),
                "nn.MultiheadAttention": PyTorch(mha),
            }
        times: dict[str, list[float]] = {name: [] for name in ways}
        with torch.no_grad():
            for module in ways.values():  # warm
                seconds(module, x, calls)
            start = perf_counter()
            for turn in range(rounds):
                if turn >= 3 and perf_counter() - start > BUDGET:
                    break
                # forwards, then backwards, so that no way is always run first
                for name in list(ways)[:: 1 if turn % 2 else -1]:
                    times[name].append(seconds(ways[name], x, calls))
        direct = times["direct transcription"]
        least = peak(ways["direct transcription"], x)
        yield (
            f"MultiHeadAttention forward, b {b}, T {num_tokens}, d {d_out}, "
            f"{num_heads} heads: {len(direct)} rounds of {calls}"
        )
        yield f"  {'':28}  {'median':>11}  ratio  (quartiles)     peak memory"
        for name, taken in times.items():
            ratios = [a / d for a, d in zip(taken, direct, strict=True)]
            low, _, high = quantiles(ratios, n=4)
            held = peak(ways[name], x)
            yield (
                f"  {name:28}  {median(taken) * 1e6:8.0f} us  {median(ratios):5.3f}"
                f"  ({low:.3f} to {high:.3f})  {held / least:5.3f}"
                f"  {held:13,} bytes"
            )


def main() -> None:
    for line in lines():
        print(line, flush=True)


if __name__ == "__main__":
    main()
