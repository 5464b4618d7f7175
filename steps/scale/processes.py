"""Heads spread over processes: `python -m steps.step24 --processes 2`.

PyTorch's own tensor parallelism on the class as it stands. W_query, W_key and W_value
are split by rows (`ColwiseParallel`; a row makes a feature, so a block of rows makes a
head), out_proj by columns (`RowwiseParallel`). Each process then has whole heads, works
on them alone, and one all-reduce adds up the processes' shares of the output.

Started here, the processes are of this machine and find each other by a file; started
by torchrun (RANK and WORLD_SIZE are set) they may be of several.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from steps.compare import Outcome, close, equal
from steps.errors import UserError
from steps.pytorch import torch, without_numpy
from steps.scale.machine import check_device
from steps.scale.report import say
from steps.scale.report import tell as tell_checks
from steps.words import count as counted
from steps.words import span

LIMIT = 120.0  # seconds until processes that are not done are given up
GRACE = 1.0  # seconds in which the others show who failed first
ROOT = Path(__file__).resolve().parents[2]


def run(
    count: int, token_ids: list[int], seed: int, device: str, limit: float = LIMIT
) -> int:
    """Do it in `count` processes: 0, or 1 when an output differs.

    Raises UserError when the heads cannot be divided so, or a process fails.
    """
    from steps.step24 import HEADS

    if HEADS % count:
        fit = [str(n) for n in range(1, HEADS + 1) if HEADS % n == 0]
        raise UserError(
            f"--processes: {HEADS} heads do not divide over {count}; "
            f"give {', '.join(fit[:-1])} or {fit[-1]}"
        )
    if not torch.distributed.is_available():
        raise UserError("--processes: this build of torch has no torch.distributed")
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        if os.environ["WORLD_SIZE"] != str(count):
            raise UserError(
                f"--processes: is {count}, WORLD_SIZE is {os.environ['WORLD_SIZE']}"
            )
        check_number("RANK", 0, count - 1)
        check_number("MASTER_PORT", 1, 65535)
        check_device(device)
        return work(by_environment, token_ids, seed, device, limit)
    check_device(device, count)
    return start(count, token_ids, seed, device, limit)


def check_number(name: str, low: int, high: int) -> None:
    """Raises UserError where torchrun's variable is not a number in this range."""
    text = os.environ.get(name, "")
    if not (text.isdecimal() and low <= int(text) <= high):
        raise UserError(
            f"--processes: {name}, which torchrun sets, is {text!r}, not a whole "
            f"number from {low} to {high}"
        )


def start(
    count: int, token_ids: list[int], seed: int, device: str, limit: float
) -> int:
    """Start the processes, wait, print the report; none of them is left behind."""
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    environment.setdefault(
        "OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count))
    )
    loopback = {"lo", "lo0"} & {name for _, name in socket.if_nameindex()}
    if loopback:
        environment.setdefault("GLOO_SOCKET_IFNAME", loopback.pop())
    task = {
        "count": count,
        "token_ids": token_ids,
        "seed": seed,
        "device": device,
        "limit": limit,
    }
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        started: list[subprocess.Popen] = []
        try:
            for rank in range(count):
                task |= {"rank": rank, "meeting": os.path.join(folder, "meeting")}
                with (
                    open(os.path.join(folder, f"out{rank}"), "wb") as out,
                    open(os.path.join(folder, f"err{rank}"), "wb") as err,
                ):
                    process = subprocess.Popen(
                        [sys.executable, "-m", __spec__.name, json.dumps(task)],
                        cwd=ROOT,
                        env=environment,
                        stdin=subprocess.PIPE,  # closed when this process ends
                        stdout=out,
                        stderr=err,
                    )
                started.append(process)
            codes = wait(started, limit)
        finally:
            for process in started:
                process.kill()
                process.wait()
                if process.stdin:
                    process.stdin.close()

        def said(rank: int, stream: str) -> str:
            return Path(folder, f"{stream}{rank}").read_text(
                encoding="utf-8", errors="replace"
            )

        check_ends(codes, [said(rank, "err") for rank in range(count)], limit)
        print(said(0, "out"), end="")
    return max(code or 0 for code in codes)


def wait(started: list[subprocess.Popen], limit: float) -> list[int | None]:
    """The exit codes, None for a process that is still running at the limit.

    Soon after one has failed, the wait is over: the others would wait for it in vain.
    """
    until = time.monotonic() + limit
    while time.monotonic() < until:
        codes = [process.poll() for process in started]
        if None not in codes:
            break
        if any(codes):
            until = min(until, time.monotonic() + GRACE)
        time.sleep(0.02)
    return [process.poll() for process in started]


def check_ends(codes: list[int | None], errors: list[str], limit: float) -> None:
    """Raises UserError, with the first cause, when a process failed."""
    names = [f"process {rank} of {len(codes)}" for rank in range(len(codes))]
    for name, code in zip(names, codes, strict=True):
        if code is not None and code < 0:
            ended = (
                signal.Signals(-code).name
                if -code in set(signal.Signals)
                else str(-code)
            )
            raise UserError(
                f"--processes: {name} was ended by {ended}; the others were stopped"
            )
    for name, code, error in zip(names, codes, errors, strict=True):
        if code and "Traceback" in error:  # not the reader's fault
            raise RuntimeError(f"{name} failed:\n{error}")
    for name, code, error in zip(names, codes, errors, strict=True):
        if code and error.strip():
            raise UserError(error.strip().splitlines()[-1].partition(": ")[2])
        if code and code != 1:
            raise UserError(f"--processes: {name} ended with exit code {code}")
    if None in codes and not any(codes):
        late = " and ".join(
            n for n, code in zip(names, codes, strict=True) if code is None
        )
        raise UserError(
            f"--processes: {late} not done within {limit:g} s; all were stopped"
        )


# A store to meet in, this process's rank, how many there are.
Meeting = tuple[Any, int, int]


def by_environment(limit: float) -> Meeting:
    """Meet where torchrun says."""
    from torch.distributed import rendezvous

    return next(rendezvous("env://", timeout=timedelta(seconds=limit)))


def work(
    meet: Callable[[float], Meeting],
    token_ids: list[int],
    seed: int,
    device: str,
    limit: float,
) -> int:
    """One process's share; process 0 prints what all of them report."""
    import torch.distributed as dist

    try:
        store, rank, count = meet(limit)
        if device == "cuda":
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)))
        dist.init_process_group(
            "nccl" if device == "cuda" else "gloo",
            store=store,
            rank=rank,
            world_size=count,
            timeout=timedelta(seconds=limit),
        )
        try:
            report = share(rank, count, token_ids, seed, device)
            store.set(f"report of {rank}", json.dumps(report))
            if rank:
                return 0 if report["holds"] else 1
            reports = [json.loads(store.get(f"report of {r}")) for r in range(count)]
        finally:
            dist.destroy_process_group()
    except (ValueError, RuntimeError) as error:
        if not of_the_network(error):
            raise
        words = " ".join(str(error).split())
        raise UserError(f"--processes: {words[:300]}") from None
    return tell(reports, seed)


def of_the_network(error: Exception) -> bool:
    """Whether the error is the connection's (or a setting of it), not the program's."""
    import torch.distributed as dist

    words = (
        "gloo",
        "NCCL",
        "Connection",
        "MASTER_",
        "timed out",
        "Timed out",
        "env://",
    )
    return isinstance(error, dist.DistError) or any(
        word in str(error) for word in words
    )


def share(
    rank: int, count: int, token_ids: list[int], seed: int, device: str
) -> dict[str, Any]:
    """Run this process's heads, and compare with the whole computed by itself."""
    with without_numpy():
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import (
            ColwiseParallel,
            RowwiseParallel,
            parallelize_module,
        )

    from steps import step24
    from steps.attention import ROLES

    with torch.no_grad():
        made = step24.step(token_ids, seed)
        mha, x = made["mha"].to(device), made["x"].to(device)
        alone = mha(x)
        names = (*ROLES, "out_proj")
        whole = {name: mha.get_parameter(f"{name}.weight").clone() for name in names}
        plan: dict[str, Any] = {role: ColwiseParallel() for role in ROLES}
        plan["out_proj"] = RowwiseParallel()
        parallelize_module(mha, init_device_mesh(device, (count,)), plan)
        mha.num_heads //= count  # this process's heads, and their width
        mha.d_out //= count
        with collectives() as sent:
            together = mha(x)
    rows, first = mha.d_out, rank * mha.d_out
    layers: dict[str, Any] = {name: mha.get_submodule(name) for name in names}
    held = {name: layer.weight.to_local() for name, layer in layers.items()}
    for role in ROLES:
        check_held(equal(held[role], whole[role][first : first + rows]), role)
    check_held(
        equal(held["out_proj"], whole["out_proj"][:, first : first + rows]), "out_proj"
    )
    outcome = close(together, alone)
    return {
        "host": socket.gethostname(),
        "heads": [rank * mha.num_heads, (rank + 1) * mha.num_heads],
        "rows": [first, first + rows],
        "held": {name: list(part.shape) for name, part in held.items()},
        "sent": sent,
        "output": list(together.shape),
        "holds": outcome.holds,
        "detail": outcome.detail,
    }


def check_held(outcome: Any, name: str) -> None:
    if not outcome:
        raise AssertionError(f"{name}.weight is not divided by heads: {outcome.detail}")


def collectives() -> Any:
    """A context that lists what is sent between processes: (operation, shape)."""
    with without_numpy():
        from torch.distributed.tensor import DTensor
        from torch.utils._python_dispatch import TorchDispatchMode

    class Collectives(TorchDispatchMode):
        def __enter__(self) -> Any:
            self.sent: list[tuple[str, list[int]]] = []
            super().__enter__()
            return self.sent

        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
        ) -> Any:
            if any(issubclass(kind, DTensor) for kind in types):
                return NotImplemented  # it is run again on the local parts
            name = func.overloadpacket.__name__
            if (
                func.namespace == "_c10d_functional"
                and "wait" not in name
                and "wrap" not in name
            ):
                self.sent.append((name, list(args[0].shape)))
            return func(*args, **(kwargs or {}))

    return Collectives()


def tell(reports: list[dict[str, Any]], seed: int) -> int:
    """Print what every process holds and did; 1 when an output differs."""
    hosts = {report["host"] for report in reports}
    where = f"{counted(len(reports), 'process')} on {counted(len(hosts), 'host')}"
    say(f"{where}, seed {seed}")
    for rank, report in enumerate(reports):
        low, high = report["heads"]
        own = high - low
        heads = f"{span('head', low + 1, own)} (index {span('', low, own)})"
        first, end = report["rows"]
        own = end - first
        held = {name: tuple(shape) for name, shape in report["held"].items()}
        where = f" on {report['host']}" if len(hosts) > 1 else ""
        say()
        say(f"process {rank}{where}: {heads}")
        rows, columns = span("row", first, own), span("column", first, own)
        say(f"  {rows} of W_query, W_key and W_value, each {held['W_query']}")
        say(f"  {columns} of out_proj, {held['out_proj']}")
        sent = [f"{name} of {tuple(shape)}" for name, shape in report["sent"]]
        say(f"  sent between the processes: {', '.join(sent) or 'nothing'}")
    say()
    return tell_checks(
        (
            f"the output of process {rank}, {tuple(report['output'])}, "
            "equals that of one process alone, within 1e-5",
            Outcome(report["holds"], report["detail"]),
        )
        for rank, report in enumerate(reports)
    )


def child(task: dict[str, Any]) -> int:
    """A process that `start` started."""

    def end_with_parent() -> None:
        os.read(0, 1)  # returns when the other end is closed
        os._exit(3)

    threading.Thread(target=end_with_parent, daemon=True).start()

    def by_file(limit: float) -> Meeting:
        store = torch.distributed.FileStore(task["meeting"], task["count"])
        store.set_timeout(timedelta(seconds=limit))
        return store, task["rank"], task["count"]

    return work(by_file, task["token_ids"], task["seed"], task["device"], task["limit"])


if __name__ == "__main__":
    from steps.commandline import quietly

    quietly(lambda: child(json.loads(sys.argv[1])))
