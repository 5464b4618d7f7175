"""`python -m steps.step24 --processes N`: the heads' places, and every way to fail."""

import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest
from program import ROOT, command

from steps.errors import UserError
from steps.pytorch import torch
from steps.scale import processes

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="torch without torch.distributed"
)
IDS = [464, 7850, 3331, 373, 39085]
children_known = pytest.mark.skipif(
    not os.path.exists("/proc/self/task"), reason="needs /proc to find the processes"
)


@pytest.mark.parametrize("count", [2, 3])
def test_each_process_holds_its_heads_and_the_outputs_agree(count):
    ran = command("-m", "steps.step24", "--processes", str(count))
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"{count} processes on 1 host, seed 123\n")
    heads = re.findall(r"^process (\d): heads (\d+) to (\d+)", ran.out, re.MULTILINE)
    each = 12 // count
    assert [tuple(map(int, row)) for row in heads] == [
        (rank, rank * each + 1, (rank + 1) * each) for rank in range(count)
    ]
    rows = re.findall(r"rows (\d+) to (\d+) of W_query", ran.out)
    columns = re.findall(r"columns (\d+) to (\d+) of out_proj", ran.out)
    assert rows == columns
    covered = [n for a, b in rows for n in range(int(a), int(b) + 1)]
    assert covered == list(range(768))
    assert (
        ran.out.count("sent between the processes: all_reduce of (1, 64, 768)") == count
    )
    assert ran.out.count("holds") == count


def test_one_process_sends_nothing():
    ran = command("-m", "steps.step24", "--processes", "1")
    assert (ran.code, ran.err) == (0, "")
    assert "sent between the processes: nothing" in ran.out


def test_under_torchrun():
    ran = command(
        *("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        *("-m", "steps.step24", "--processes", "2"),
    )
    assert ran.code == 0
    assert ran.out.count("process 0: heads 1 to 6") == 1
    assert ran.out.count("holds") == 2


def test_heads_that_do_not_divide():
    ran = command("-m", "steps.step24", "--processes", "5")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "steps.step24: --processes: 12 heads do not divide over 5; "
        "give 1, 2, 3, 4, 6 or 12\n"
    )


def test_a_count_that_is_not_the_launcher_s():
    ran = command("-m", "steps.step24", "--processes", "2", RANK="0", WORLD_SIZE="3")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "steps.step24: --processes: is 2, WORLD_SIZE is 3\n"


def test_a_busy_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        ran = command(
            *("-m", "steps.step24", "--processes", "2"),
            **{"RANK": "0", "WORLD_SIZE": "2", **place},
        )
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("steps.step24: --processes: ")
    assert port in ran.err
    assert "in use" in ran.err
    assert ran.err.count("\n") == 1


def test_no_hang_when_a_process_is_late():
    with pytest.raises(UserError, match=r"not done within 0\.2 s; all were stopped"):
        processes.run(2, IDS, 123, "cpu", limit=0.2)


def children(parent: int) -> list[int]:
    with open(f"/proc/{parent}/task/{parent}/children") as listed:
        return [int(pid) for pid in listed.read().split()]


def running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def started() -> tuple[subprocess.Popen, list[int]]:
    """The command in a process of its own, and the two processes that it started."""
    program = subprocess.Popen(
        [sys.executable, "-m", "steps.step24", "--processes", "2"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 120
    while len(found := children(program.pid)) < 2:
        assert time.monotonic() < until
        assert program.poll() is None
        time.sleep(0.02)
    return program, found


@children_known
@pytest.mark.parametrize("victim", [0, 1])
def test_a_process_that_dies(victim):
    program, workers = started()
    os.kill(workers[victim], signal.SIGKILL)
    out, err = program.communicate(timeout=120)
    assert (program.returncode, out) == (2, "")
    assert err == (
        f"steps.step24: --processes: process {victim} of 2 was ended by SIGKILL; "
        "the others were stopped\n"
    )
    assert not any(running(pid) for pid in workers)


@children_known
def test_no_process_is_left_when_the_command_itself_is_killed():
    program, workers = started()
    program.kill()
    program.communicate(timeout=120)
    until = time.monotonic() + 120
    while any(running(pid) for pid in workers):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_fault_of_ours_is_a_traceback():
    with pytest.raises(RuntimeError, match=r"process 1 of 2 failed:\nTraceback"):
        processes.check_ends([0, 1], ["", "Traceback (most recent call last)"], 1.0)
