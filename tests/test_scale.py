"""Step 24's block, its formulas against counting, and what it measures."""

import math
import re

import pytest
from program import ROOT, one_step
from torch.nn.functional import scaled_dot_product_attention

from steps import progress, step24
from steps.attention import MultiHeadAttention
from steps.compare import close
from steps.pytorch import nn, torch
from steps.scale import timing
from steps.scale.cost import fused_bytes, kept, score_elements, size


def test_the_step_prints_its_block_and_every_check_holds():
    ran = one_step(24)
    assert (ran.code, ran.err) == (0, "")
    assert "\nStep 24: the same attention at GPT-2's size  " in ran.out
    assert ran.out.count("  holds  ") == 14
    assert re.search(r"\(1, 12, 64, 64\)  \(B, H, T, D\) +rearranged", ran.out)
    assert re.search(r"\(1, 12, 64, 64\)  \(B, H, T, T\) +computed", ran.out)
    # 12 * 131072 * 131072 numbers of 4 bytes are 768 GiB
    assert "131,072  206,158,430,208  768.0 GiB  384.0 GiB" in ran.out


@pytest.mark.parametrize(
    "flags",
    [
        ("--heads", "1", "--head-dim", "1", "--d-in", "1"),
        ("--text", "of of", "--seed", "7"),
        ("--text", "a " * 100),
    ],
)
def test_the_checks_hold_at_other_flags(flags):
    ran = one_step(24, *flags)
    assert (ran.code, "FAILS" in ran.out) == (0, False)


def test_the_caller_s_random_state_is_left_as_found():
    before = torch.get_rng_state()
    step24.step([464, 7850, 3331], 123)
    assert torch.equal(torch.get_rng_state(), before)


def test_each_wrong_way_to_pack_the_weights_is_noticed():
    made = step24.step([464, 7850], 3)
    torch_mha, x, blocked = made["torch_mha"], made["x"], made["blocked"]
    weight, bias = torch_mha.in_proj_weight, torch_mha.in_proj_bias
    for order in [(1, 0, 2), (0, 2, 1), (2, 1, 0)]:
        for name, tensor in (("in_proj_weight", weight), ("in_proj_bias", bias)):
            parts = tensor.detach().chunk(3)
            packed = torch.cat([parts[i] for i in order])
            setattr(torch_mha, name, nn.Parameter(packed))
        output, _ = torch_mha(x, x, x, attn_mask=blocked, need_weights=False)
        assert not close(output, made["class_vectors"])


def test_scores_are_counted_pair_by_pair():
    for T, H in ((1, 1), (3, 2), (5, 4)):
        pairs = [(h, i, j) for h in range(H) for i in range(T) for j in range(T)]
        assert score_elements(T, H) == len(pairs)


@pytest.mark.parametrize("T", [1, 4, 33])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_the_fused_form_keeps(T, dtype):
    H, D = 3, 16
    q, k, v = torch.randn(3, 1, H, T, D).to(dtype)
    found = kept(lambda *a: scaled_dot_product_attention(*a, is_causal=True), q, k, v)
    output = H * T * D * dtype.itemsize
    sums = H * T * 4
    assert sum(tensor.nbytes for tensor in found) == output + sums
    assert fused_bytes(T, H, D, dtype.itemsize) == output + sums


def test_kept_finds_what_a_product_and_a_softmax_keep():
    a = torch.randn(5, 7)
    assert [t.shape for t in kept(lambda x: x * 2, a)] == []
    assert kept(lambda x: x * x, a) == []  # its own input, twice
    (weights,) = kept(lambda x: torch.softmax(x, -1), a)
    assert close(weights, torch.softmax(a, -1))


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 * 2**19, "1.5 MiB")],
)
def test_sizes_are_in_the_largest_unit_they_fill(count, text):
    assert size(count) == text


@pytest.mark.parametrize("way", [w for w in timing.WAYS if w != "flex_attention"])
def test_every_way_that_is_timed_is_attention_written_as_loops(way):
    module, x = timing.make(way, 5, 123, "cpu")
    base, _ = timing.make("class", 5, 123, "cpu")
    assert isinstance(base, MultiHeadAttention)
    q, k, v = (a(x)[0].tolist() for a in (base.W_query, base.W_key, base.W_value))
    joined = []
    for i in range(5):
        row: list[float] = []
        for head in range(12):
            at = range(head * 64, head * 64 + 64)
            scores = [sum(q[i][c] * k[j][c] for c in at) / 8 for j in range(i + 1)]
            exps = [math.exp(s - max(scores)) for s in scores]
            row += [
                sum(e * v[j][c] for j, e in enumerate(exps)) / sum(exps) for c in at
            ]
        joined.append(row)
    expected = base.out_proj(torch.tensor([joined]))
    assert close(timing.task(module, x, "forward")(), expected.detach())
    assert close(timing.task(module, x, "forward+backward")(), expected.detach())


def test_timing_prints_ratios_first(capfd):
    ways = ("stacked wrapper", "class", "scaled_dot_product_attention")
    assert timing.run(5, "cpu", 16, (16,), 0.1, ways) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert out.index("In units of the class") < out.index("in ms")
    rows = [line.split() for line in out.splitlines()]
    assert next(row[1:] for row in rows if row[:1] == ["class"]) == ["1"] * 4
    assert "16 tokens, 768 wide, 12 heads" in out
    assert out.count("holds") == 2
    assert "FAILS" not in out


def test_timing_says_how_far_it_is(capfd, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(timing, "peaks", lambda wanted, *_: dict.fromkeys(wanted))
    ways = ("class", "scaled_dot_product_attention")
    timing.run(5, "cpu", 16, (8,), 0.1, ways)
    lines = capfd.readouterr().err.splitlines()
    assert [line.split()[0].strip(",;") for line in lines] == [
        "preparing",
        "time",
        "growth",
        "memory",
    ]
    with progress.quiet(True):
        timing.run(5, "cpu", 16, (8,), 0.1, ways)
    assert capfd.readouterr().err == ""


def test_memory_in_a_fresh_process_is_at_least_the_scores():
    base, fused = [(way, "forward", 512) for way in (timing.BASE, timing.FUSED)]
    memory = timing.peaks([base, fused], 1, "cpu")
    measured = memory[base]
    if measured is None:
        pytest.skip("this system does not tell a process's memory")
    assert measured >= 12 * 512 * 512 * 4
    assert memory[fused] < measured


def test_what_cannot_run_says_why(monkeypatch):
    def without_a_compiler(length, device):
        raise RuntimeError("no C++\n  compiler")

    monkeypatch.setattr(timing, "flexible", without_a_compiler)
    ways = ["class", "flex_attention"]
    tasks, _checks, reasons = timing.prepare(ways, 8, 1, "cpu", progress.Progress())
    assert set(tasks) == {("class", kind) for kind in timing.KINDS}
    assert set(reasons.values()) == {"no C++ compiler"}


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--layer", "1"], "--layer: belongs to --weights FILE"),
        (["--device", "cpu"], "--device: belongs to --time, --processes or --weights"),
        (
            ["--time", "--processes", "2"],
            "--processes: not allowed with argument --time",
        ),
        (["--processes", "0"], "--processes: takes a whole number from 1"),
        (["--device", "tpu"], "--device: invalid choice"),
    ],
)
def test_flags_that_do_not_go_together(flags, says):
    from program import within

    from steps.scale import command
    from steps.walk.command import step

    file = str(ROOT / "steps" / "step24.py")
    ran = within(lambda: step(file, flags, command))
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("flag", [["--time"], ["--processes", "2"]])
def test_a_gpu_that_is_not_there(flag):
    from program import within

    from steps.scale import command
    from steps.walk.command import step

    file = str(ROOT / "steps" / "step24.py")
    ran = within(lambda: step(file, [*flag, "--device", "cuda"], command))
    assert ran.code == 2
    assert "--device: this torch finds 0 CUDA devices" in ran.err
