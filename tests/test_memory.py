"""Too little memory, or too few descriptors: one line, and nothing half-written."""

import json
import struct
import sys
from pathlib import Path

import pytest
from program import PROGRAM, Ran, command

if sys.platform != "linux":
    pytest.skip("limits that hold", allow_module_level=True)

LIMITED = """\
import resource, runpy, sys

kind, most, sys.argv = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
resource.setrlimit(getattr(resource, kind), (most, most))
if sys.argv[0] == "-m":
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
else:
    runpy.run_path(sys.argv[0], run_name="__main__")
"""
LONG = "the cat " * 1500


def limited(kind: str, most: int, *arguments: str) -> Ran:
    """Run the program where it may have so much and no more."""
    return command("-c", LIMITED, kind, str(most), *arguments)


def told(ran: Ran, *parts: str) -> None:
    assert (ran.code, ran.err.count("\n")) == (2, 1), ran.err
    for part in parts:
        assert part in ran.err


@pytest.mark.parametrize("megabytes", [100, 250, 400, 500])
def test_torch_does_not_fit(megabytes: int) -> None:
    ran = limited("RLIMIT_AS", megabytes * 2**20, PROGRAM)
    told(ran, "not enough memory to load torch", "ulimit -v")
    assert ran.out == ""


@pytest.mark.parametrize("flags", [[], ["--json"], ["--page"]])
def test_a_long_text_does_not_fit(flags: list[str], tmp_path: Path) -> None:
    if flags == ["--page"]:
        flags = ["--page", str(tmp_path / "page.html")]
    most = 900 * 2**20
    ran = limited("RLIMIT_AS", most, PROGRAM, "--quiet", "--text", LONG, *flags)
    tokens = f"{2 * 1500 + 1:,} tokens"  # the last space is one
    told(ran, "not enough memory", tokens, "2 heads", "MB", "a shorter --text")
    assert "Traceback" not in ran.out
    assert flags == [] or ran.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_turn_does_not_blame_the_code_for_it() -> None:
    """It is taken for real, and that memory runs out in it is no lesson."""
    ran = limited("RLIMIT_AS", 900 * 2**20, PROGRAM, "--text", LONG)
    assert "allocate" not in ran.out


@pytest.mark.parametrize("most", [4, 5, 8])
def test_too_few_descriptors(most: int) -> None:
    ran = limited("RLIMIT_NOFILE", most, PROGRAM, "--steps", "15")
    if ran.code:
        told(ran, "open files")
    else:
        assert ran.err == ""


def test_a_page_larger_than_a_file_may_be(tmp_path: Path) -> None:
    saving = (
        "from pathlib import Path; from steps.commandline import quietly; "
        "from steps.walk.page import save; "
        "quietly(lambda: save(Path(sys.argv[1]), 'x' * 10_000))"
    )
    limit = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (4096,) * 2)"
    )
    told(command("-c", f"{limit}; {saving}", str(tmp_path / "a")), "File too large")
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_larger_than_the_memory(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    file, size = tmp_path / "model.safetensors", 50257 * 768 * 4
    about = {"dtype": "F32", "shape": [50257, 768], "data_offsets": [0, size]}
    header = json.dumps({"wte.weight": about}).encode()
    with file.open("wb") as out:
        out.write(struct.pack("<Q", len(header)) + header)
        out.truncate(120 * 10**9)  # without taking any room
    step24 = ["-m", "steps.step24", "--weights", str(file)]
    ran = limited("RLIMIT_AS", 4 * 2**30, *step24)
    told(ran, "not enough memory", file.name, "120.0 GB", "fewer layers")
    assert ran.out == ""
