"""Time and memory of ways to compute the same attention: `steps.step24 --time`.

Every way has the same weights and is first held against the class. Then they take
turns, one call each a round, so that whatever else the machine does falls on all alike;
a ratio is taken within a round. Peak memory is measured in a fresh process for each.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from steps.attention import ROLES, MultiHeadAttention, MultiHeadAttentionWrapper
from steps.compare import Outcome, close
from steps.layout import Table
from steps.progress import Progress
from steps.pytorch import loaded, nn, seeded, torch, without_numpy
from steps.scale.cost import size
from steps.scale.machine import check_device, named
from steps.scale.report import say, show, tell
from steps.step24 import HEAD_DIM, HEADS, WIDTH

LENGTH = 1024
GROWTH = (128, 256, 512, 1024, 2048)
SECONDS = 20.0  # of rounds; at least LEAST of them, at most MOST
LEAST, MOST = 5, 25
KINDS = ("forward", "forward+backward")
ROOT = Path(__file__).resolve().parents[2]
fused = nn.functional.scaled_dot_product_attention


class Stacked(nn.Module):
    """Single heads one after the other, and out_proj: (B, T, 768) -> (B, T, 768)."""

    def __init__(self, mha: MultiHeadAttention, length: int) -> None:
        super().__init__()
        self.wrapper = MultiHeadAttentionWrapper(
            WIDTH, HEAD_DIM, length, 0.0, HEADS, True
        )
        for head, single in enumerate(self.wrapper.heads):
            rows = slice(head * HEAD_DIM, (head + 1) * HEAD_DIM)
            names = [f"{r}.{part}" for r in ROLES for part in ("weight", "bias")]
            loaded(single, {name: mha.get_parameter(name)[rows] for name in names})
        self.out_proj = mha.out_proj

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out_proj(self.wrapper(x))


class Packed(nn.Module):
    """One layer for q, k and v together, as GPT-2 has it; the rest is the class's."""

    def __init__(self, mha: MultiHeadAttention, length: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        loaded(self.qkv, packed_weights(mha))
        self.out_proj = mha.out_proj
        self.register_buffer(
            "mask", torch.ones(length, length, dtype=torch.bool).triu(1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        B, T, _ = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, HEADS, HEAD_DIM).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(2, 3) / HEAD_DIM**0.5
        weights = scores.masked_fill(
            self.get_buffer("mask")[:T, :T], -torch.inf
        ).softmax(-1)
        return self.out_proj((weights @ v).transpose(1, 2).reshape(B, T, WIDTH))


class Fused(nn.Module):
    """The class's layers around one call that takes (q, k, v), each (B, H, T, D)."""

    def __init__(
        self, mha: MultiHeadAttention, call: Callable[..., torch.Tensor]
    ) -> None:
        super().__init__()
        self.mha = mha
        self.call = call

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        B, T, _ = x.shape
        layers = (self.mha.W_query, self.mha.W_key, self.mha.W_value)
        q, k, v = (
            layer(x).view(B, T, HEADS, HEAD_DIM).transpose(1, 2) for layer in layers
        )
        return self.mha.out_proj(
            self.call(q, k, v).transpose(1, 2).reshape(B, T, WIDTH)
        )


class Library(nn.Module):
    """nn.MultiheadAttention; in evaluation without gradients it has a fast path."""

    def __init__(self, mha: MultiHeadAttention, length: int) -> None:
        super().__init__()
        self.own = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        weights = {f"in_proj_{part}": w for part, w in packed_weights(mha).items()}
        out = {f"out_proj.{part}": w for part, w in mha.out_proj.state_dict().items()}
        loaded(self.own, weights | out)
        self.register_buffer(
            "mask", torch.ones(length, length, dtype=torch.bool).triu(1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = self.get_buffer("mask")[: x.shape[1], : x.shape[1]]
        return self.own(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)[0]


def packed_weights(mha: MultiHeadAttention) -> dict[str, torch.Tensor]:
    """The rows of q, then of k, then of v: weight (3 * 768, 768) and bias (3 * 768)."""
    layers = (mha.W_query, mha.W_key, mha.W_value)
    return {
        part: torch.cat([layer.get_parameter(part) for layer in layers]).detach()
        for part in ("weight", "bias")
    }


def flexible(length: int, device: str) -> Callable[..., torch.Tensor]:
    """flex_attention, compiled for causal attention over `length` tokens."""
    # No processes of its own.
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    with without_numpy():
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        blocks = create_block_mask(
            lambda b, h, q, k: q >= k, None, None, length, length, device=device
        )
    compiled = torch.compile(flex_attention)

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        with without_numpy():
            return compiled(q, k, v, block_mask=blocks)

    return call


WAYS = {
    "stacked wrapper": Stacked,
    "class": lambda mha, length: mha,
    "packed qkv": Packed,
    "scaled_dot_product_attention": lambda mha, length: Fused(
        mha, lambda q, k, v: fused(q, k, v, is_causal=True)
    ),
    "nn.MultiheadAttention": Library,
    "flex_attention": lambda mha, length: Fused(
        mha, flexible(length, mha.out_proj.weight.device.type)
    ),
}
BASE, FUSED = "class", "scaled_dot_product_attention"


def make(
    way: str, length: int, seed: int, device: str
) -> tuple[nn.Module, torch.Tensor]:
    """One way with its weights, and its input (1, length, 768); from the seed alone."""
    with seeded(seed):
        mha = MultiHeadAttention(WIDTH, WIDTH, length, 0.0, HEADS, True)
        x = torch.randn(1, length, WIDTH)
        made = WAYS[way](mha.to(device), length)
    return made.to(device), x.to(device)


def task(module: nn.Module, x: torch.Tensor, kind: str) -> Callable[[], torch.Tensor]:
    """A call of the kind, with no gradients left from the last one."""
    if kind == "forward":

        def forward() -> torch.Tensor:
            module.eval()
            with torch.no_grad():
                return module(x)

        return forward

    def both() -> torch.Tensor:
        module.train()
        module.zero_grad(set_to_none=True)
        y = module(x)
        y.backward(torch.ones_like(y))
        return y.detach()

    return both


def seconds(call: Callable[[], Any], device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


Tasks = dict[tuple[str, str], Callable[[], torch.Tensor]]  # by (way, kind)


def prepare(
    ways: list[str], length: int, seed: int, device: str, progress: Progress
) -> tuple[Tasks, list[tuple[str, Outcome]], dict[tuple[str, str], str]]:
    """What can run here, warm; checks that all agree; why the others do not run."""
    tasks: Tasks = {}
    outcomes: dict[tuple[str, str], Outcome] = {}
    reasons: dict[tuple[str, str], str] = {}
    expected: torch.Tensor | None = None
    for way in sorted(ways, key=lambda way: way != BASE):
        progress("preparing", way)
        for kind in KINDS:
            try:
                call = task(*make(way, length, seed, device), kind)
                output = call()
            except Exception as error:  # a compiler may be missing, and much else in it
                if way != "flex_attention":
                    raise
                reasons[way, kind] = (
                    " ".join(str(error).split())[:160] or type(error).__name__
                )
                continue
            expected = output if expected is None else expected
            if way != BASE:
                outcomes[way, kind] = close(output, expected, 1e-4)
            call()
            tasks[way, kind] = call
    checks = []
    for kind in KINDS:
        of_kind = {way: outcome for (way, k), outcome in outcomes.items() if k == kind}
        wrong = next((way for way, outcome in of_kind.items() if not outcome), None)
        detail = f"{wrong}: {of_kind[wrong].detail}" if wrong else ""
        claim = f"{kind}: the class's output, within 1e-4, from {', '.join(of_kind)}"
        checks.append((claim, Outcome(wrong is None, detail)))
    return tasks, checks, reasons


def take_turns(
    tasks: Tasks, device: str, budget: float, progress: Progress, stage: str
) -> dict[tuple[str, str], list[float]]:
    """Seconds of every task in every round; as many rounds as the budget allows."""
    found: dict[tuple[str, str], list[float]] = {at: [] for at in tasks}
    end = time.perf_counter() + budget
    for turn in range(MOST):
        if turn >= LEAST and time.perf_counter() > end:
            break
        for at, call in tasks.items():
            progress(stage, f"round {turn + 1} of at most {MOST}: {at[0]}, {at[1]}")
            found[at].append(seconds(call, device))
    return found


Memory = dict[tuple[str, str, int], int | None]  # by (way, kind, length)


def peaks(wanted: list[tuple[str, str, int]], seed: int, device: str) -> Memory:
    """Bytes that one call of each takes at most, beyond what stood before it.

    Each in a process of its own; several at a time, since memory does not depend on
    speed. None where the system does not tell.
    """

    def peak(at: tuple[str, str, int]) -> int | None:
        order = dict(zip(("way", "kind", "length"), at, strict=True))
        order |= {"seed": seed, "device": device}
        done = subprocess.run(
            [sys.executable, "-m", "steps.scale.timing", json.dumps(order)],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"measuring memory, {at}, failed:\n{done.stderr}")
        return json.loads(done.stdout.splitlines()[-1])

    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as together:
        return dict(zip(wanted, together.map(peak, wanted), strict=True))


def peak_here(way: str, kind: str, length: int, seed: int, device: str) -> int | None:
    """One of `peaks`, in this process."""
    module, x = make(way, length, seed, device)
    small = x if way == "flex_attention" else x[:, :8]  # flex_attention: compiled for x
    task(module, small, kind)()  # libraries and threads are loaded now
    module.zero_grad(set_to_none=True)
    call = task(module, x, kind)
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    try:
        with open("/proc/self/clear_refs", "w") as reset:
            reset.write("5")
        before = status("VmHWM")
        call()
        return status("VmHWM") - before
    except OSError:
        pass
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    call()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit


def status(key: str) -> int:
    """A value of this process's /proc/self/status, in bytes."""
    with open("/proc/self/status") as lines:
        return next(
            int(line.split()[1]) * 1024 for line in lines if line.startswith(key)
        )


def run(
    seed: int,
    device: str,
    length: int = LENGTH,
    growth: tuple[int, ...] = GROWTH,
    budget: float = SECONDS,
    ways: tuple[str, ...] = tuple(WAYS),
) -> int:
    """Measure and print: 0, or 1 when a way does not give the class's output."""
    check_device(device)
    with Progress() as progress:
        tasks, checks, reasons = prepare(list(ways), length, seed, device, progress)
        stage = f"time, for about {budget:.0f} seconds; then growth, then memory"
        times = take_turns(tasks, device, budget, progress, stage)
        progress("growth; then memory")
        more, stage = prepare_growth(growth, seed, device), "growth; then memory"
        growing = take_turns(more, device, budget / 5, progress, stage)
        progress("memory, each in a fresh process")
        wanted = [(way, kind, length) for way, kind in tasks]
        wanted += [(way, "forward", T) for T in growth for way in (BASE, FUSED)]
        memory = peaks(list(dict.fromkeys(wanted)), seed, device)
    rounds = len(times[BASE, "forward"])
    say(
        f"One sentence of {length} tokens, {WIDTH} wide, {HEADS} heads, float32, "
        f"seed {seed}."
    )
    say(f"{named(device)}.")
    say()
    say(
        f"In units of the class: time is the median of {rounds} interleaved rounds "
        "(and the lowest and highest ratio), memory the peak of one call in a fresh "
        "process, beyond weights and input. '-': could not be measured here."
    )
    show(ratios(list(ways), length, times, memory))
    say("Median time (lowest-highest) in ms, and peak memory:")
    show(amounts(list(ways), length, times, memory))
    for (way, kind), reason in reasons.items():
        say(f"{way}, {kind}, did not run here: {reason}")
        say()
    say(f"As T grows, forward: {FUSED} in units of the class, then both.")
    show(grown(growth, growing, memory))
    return tell(checks)


def ratios(ways: list[str], length: int, times: dict, memory: Memory) -> Table:
    rows = []
    for way in ways:
        cells = []
        for kind in KINDS:
            pairs = zip(times.get((way, kind), []), times[BASE, kind], strict=False)
            each = [a / b for a, b in pairs]
            cells.append(
                f"{median(each):.2f} ({min(each):.2f}-{max(each):.2f})" if each else "-"
            )
            if way == BASE:
                cells[-1] = "1"
        for kind in KINDS:
            own, base = memory.get((way, kind, length)), memory[BASE, kind, length]
            ratio = f"{own / base:.2f}" if own is not None and base else "-"
            cells.append("1" if way == BASE else ratio)
        rows.append((way, *cells))
    return Table(
        ("", "time, forward", "forward+backward", "memory, forward", "fwd+bwd"),
        tuple(rows),
    )


def amounts(ways: list[str], length: int, times: dict, memory: Memory) -> Table:
    rows = []
    for way in ways:
        cells = [milliseconds(times.get((way, kind), [])) for kind in KINDS]
        cells += [bytes_of(memory.get((way, kind, length))) for kind in KINDS]
        rows.append((way, *cells))
    return Table(
        ("", "ms, forward", "forward+backward", "memory, forward", "fwd+bwd"),
        tuple(rows),
    )


def milliseconds(found: list[float]) -> str:
    if not found:
        return "-"
    low, middle, high = (1000 * s for s in (min(found), median(found), max(found)))
    digits = 1 if middle < 100 else 0
    return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def bytes_of(count: int | None) -> str:
    return "-" if count is None else size(count)


def prepare_growth(lengths: tuple[int, ...], seed: int, device: str) -> Tasks:
    """The class and the fused form, forward, at each length; warm."""
    tasks: Tasks = {}
    for length in lengths:
        for way in (BASE, FUSED):
            tasks[way, str(length)] = task(*make(way, length, seed, device), "forward")
            tasks[way, str(length)]()
    return tasks


def grown(lengths: tuple[int, ...], times: dict, memory: Memory) -> Table:
    """A row for each length: ratios first, then milliseconds and bytes."""
    rows = []
    for length in lengths:
        own, fused_ = times[BASE, str(length)], times[FUSED, str(length)]
        ratio = median(b / a for a, b in zip(own, fused_, strict=True))
        most = [memory[way, "forward", length] for way in (BASE, FUSED)]
        less = f"{most[1] / most[0]:.2f}" if most[0] and most[1] is not None else "-"
        milliseconds = (f"{1000 * median(found):.1f}" for found in (own, fused_))
        cells = (f"{length:,}", f"{ratio:.2f}", less, *milliseconds)
        rows.append((*cells, *map(bytes_of, most)))
    header = ("T", "time", "memory", "class ms", "fused ms", "class", "fused")
    return Table(header, tuple(rows))


if __name__ == "__main__":
    print(json.dumps(peak_here(**json.loads(sys.argv[1]))))
