"""Whatever is around the program: the same numbers, or one line why it cannot be."""

import os
import re
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from program import PROGRAM, Ran, command, main, shell

posix = pytest.mark.skipif(os.name == "nt", reason="a POSIX shell")

SUMS = [PROGRAM, "--steps", "15"]


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("flag", ["--list", "--help", "--steps=2"])
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ('"$@" >/dev/full', "No space left"),
        ('"$@" 1</dev/null', "Bad file descriptor"),
        ('ulimit -f 0; exec "$@" >"$FILE"', "File too large"),
    ],
)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_an_output_that_cannot_be_written_is_told_in_a_line(
    script: str, reason: str, flag: str, unbuffered: str, tmp_path: Path
) -> None:
    environment = {"FILE": str(tmp_path / "out"), "PYTHONUNBUFFERED": unbuffered}
    ran = shell(script, PROGRAM, flag, **environment)
    assert (ran.code, ran.err) == (2, f"gptversion.py: the output: {ran.err[27:]}")
    assert reason in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_errors_that_cannot_be_written_keep_their_exit_code() -> None:
    for flags in (["--size", "3"], ["--text", "one"], ["--steps", "99"]):
        ran = shell('"$@" 2>/dev/full', PROGRAM, *flags)
        assert (ran.code, ran.out) == (2, "")
    assert shell('"$@" >/dev/full 2>/dev/full', PROGRAM, "--list").code == 2


def test_the_numbers_are_the_published_ones_whatever_torch_is_set_to() -> None:
    from steps.pytorch import torch

    flags = ("--steps", "15-16,21")
    usual = main(*flags)
    matmul = torch.backends.mkldnn.matmul
    found = torch.get_default_dtype(), matmul.fp32_precision
    try:
        torch.set_default_dtype(torch.float64)
        torch.set_float32_matmul_precision("medium")
        torch.set_default_device("meta")
        with ExitStack() as odd:
            odd.enter_context(torch.autocast("cpu"))
            odd.enter_context(torch.inference_mode())
            assert main(*flags) == usual
            assert main("--steps", "99").code == 2  # nothing is left set by an error
            assert torch.get_default_dtype() == torch.float64
            assert torch.get_default_device().type == "meta"
            assert torch.get_float32_matmul_precision() == "medium"
            assert torch.is_autocast_enabled("cpu")
            assert torch.is_inference_mode_enabled()
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(found[0])
        torch.set_float32_matmul_precision("highest")
        matmul.fp32_precision = found[1]


@pytest.mark.parametrize(
    "flags", [["-I"], ["-OO"], pytest.param(["-P"], id="safe path")]
)
def test_pythons_own_flags_change_nothing(flags: list[str]) -> None:
    """-I and -P look for no module in the program's folder, -OO drops docstrings."""
    if flags == ["-P"] and sys.version_info < (3, 11):
        pytest.skip("Python 3.11's flag")
    ran = command(*flags, *SUMS)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == main(*SUMS[1:]).out


@posix
def test_a_working_directory_that_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    ran = shell('cd "$GONE" && rmdir "$GONE" && "$@"', *SUMS, GONE=str(gone))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == main(*SUMS[1:]).out


@posix
def test_a_text_in_a_locale_that_has_no_such_characters() -> None:
    ascii_only = {
        "LC_ALL": "C",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONUTF8": "0",
        "PYTHONIOENCODING": "utf-8",
    }
    flags = ["-m", "steps.step2", "--text", "wörld 河 bank", "--follow", "wör"]
    usual = command(*flags)
    assert shell('"$@"', *flags, **ascii_only) == usual
    assert "is not in the text" in usual.err
    assert "wörld" in command(*flags[:4]).out


STOP = """\
import sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
"""


@pytest.mark.parametrize(
    "name", ["steps.walk.command", "steps.tokens", "argparse", "steps.pytorch", "torch"]
)
def test_an_interrupt_while_loading_is_quiet(name: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(STOP.format(name=name))
    for arguments in ([PROGRAM], ["-m", "steps.step15"]):
        ran = command(*arguments, PYTHONPATH=str(tmp_path))
        assert (ran.code, ran.out, ran.err.strip()) == (130, "", "")


VALUE = re.compile(r"-?\d+\.\d{4}\b")


@pytest.mark.parametrize(
    "level", [{"ATEN_CPU_CAPABILITY": "default"}, {"OMP_NUM_THREADS": "1"}], ids=str
)
def test_other_ways_to_add_up_turn_the_last_decimal_at_most(
    level: dict[str, str], whole_run: Ran
) -> None:
    """What README says of processors without AVX2, and of threads."""
    ran = command(PROGRAM, **level)
    assert (ran.code, ran.err) == (0, "")
    assert VALUE.sub("#", ran.out).split() == VALUE.sub("#", whole_run.out).split()
    pairs = zip(VALUE.findall(ran.out), VALUE.findall(whole_run.out), strict=True)
    assert max(abs(float(a) - float(b)) for a, b in pairs) < 1.5e-4
