"""The debugger on odd and hostile files, and what running them leaves behind."""

import contextlib
import gc
import io
import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from program import PATIENCE, PROGRAM, ROOT, command

from steps.debugger import contain, diagnose
from steps.debugger.apart import FORKS
from steps.debugger.command import check
from steps.debugger.contain import contained
from steps.debugger.examine import examine_file
from steps.debugger.load import LARGEST, TooLong, limited
from steps.pytorch import nn, torch

forks = pytest.mark.skipif(not FORKS, reason="only where a process can be forked")
RIGHT = """\
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, heads, max_len):
        super().__init__()
        if dim % heads:
            raise ValueError("dim is not a multiple of heads")
        self.h = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.register_buffer("bias", torch.full((max_len, max_len), -torch.inf).triu(1))

    def forward(self, x):
        b, t, c = x.shape
        packed = self.qkv(x).view(b, t, 3, self.h, c // self.h)
        q, k, v = packed.permute(2, 0, 3, 1, 4)
        s = q @ k.transpose(-1, -2) / (c // self.h) ** 0.5
        w = (s + self.bias[:t, :t]).softmax(-1)
        y = (w @ v).transpose(1, 2).reshape(b, t, c)
        return self.proj(y)
"""
END = "return self.proj(y)"
START = "b, t, c = x.shape"
WRONG = RIGHT.replace(".softmax(-1)", ".softmax(1)")
WRONG_LINE = 1 + RIGHT[: RIGHT.index(".softmax")].count("\n")


def ending(*statements: str) -> str:
    return RIGHT.replace(END, "\n        ".join(statements))


def starting(statement: str) -> str:
    return RIGHT.replace(START, f"{statement}\n        {START}")


DATACLASS = """\
import torch
from dataclasses import dataclass
from torch import nn


@dataclass
class Attention(nn.Module):
    dim: int
    heads: int

    def __post_init__(self):
        super().__init__()
        self.qkv = nn.Linear(self.dim, 3 * self.dim)

    def forward(self, x):
        return self.qkv(x).chunk(3, -1)[0]
"""
UNPRINTABLE = """
    def __repr__(self):
        raise ValueError("no name")

    def __eq__(self, other):
        raise ValueError("no equal")

    __hash__ = nn.Module.__hash__
"""

# A file, the verdict, and a word of what is said of it.
FILES = [
    (ending("return self.proj(y).to(torch.complex64)"), "cannot tell", "a complex64"),
    (ending("return self.proj(y) > 0"), "cannot tell", "a bool tensor"),
    (ending("return self.proj(y).long()"), "cannot tell", "an int64 tensor"),
    (ending("return self.proj(y).to(torch.float8_e5m2)"), "cannot tell", "a float8"),
    (
        ending("kind = type('T', (torch.Tensor,), {})", f"{END}.as_subclass(kind)"),
        "cannot tell",
        "a T tensor",
    ),
    (ending("out = [self.proj(y)]", "out.append(out)", "return out"), "no fault", ""),
    (
        ending("out = {'y': self.proj(y)}", "out['me'] = out", "return out"),
        "no fault",
        "",
    ),
    (ending("out = self.proj(y), w > 0", "return out"), "no fault", ""),
    (DATACLASS, "cannot tell", "eq=False"),
    (RIGHT + UNPRINTABLE, "no fault", ""),
    (
        ending("y = self.proj(y)", "y.sum().backward()", "return y"),
        "cannot tell",
        "without gradients",
    ),
    (ending("print('x' * 10_000_000)", END), "no fault", ""),
    ("while True: print('x' * 1_000_000)", "cannot tell", "did not come back"),
    (
        "import sys\nwhile True: sys.stdout.buffer.write(b'x' * 1_000_000)",
        "cannot tell",
        "did not come back",
    ),
    (
        "import io, sys\nsys.stdout.reconfigure(encoding='utf-8')\n"
        "sys.stdout = io.TextIOWrapper(sys.stdout.detach(), encoding='utf-8')\n"
        "print('\\u00e9'); sys.stdout.close()\n" + RIGHT,
        "no fault",
        "",
    ),
    (ending("torch.ones(10**12)", END), "cannot tell", "line 22: it needs more memory"),
    (
        RIGHT.replace("self.h = heads", "self.h = heads; self.t = torch.ones(10**12)"),
        "cannot tell",
        "line 10: it needs more memory",
    ),
    ("raise MemoryError", "cannot tell", "MemoryError"),
    ("open(__file__, 'w').write('# gone\\n' * 99)\n" + RIGHT, "no fault", ""),
    ("open(__file__, 'w').write('# gone\\n' * 99)\n" + WRONG, "fault", "w = "),
    ("import os; os.remove(__file__)\n" + WRONG, "fault", "w = "),
    (starting("torch.softmax = torch.sum"), "cannot tell", "replaces torch.softmax"),
    ("import torch; torch.set_default_dtype(torch.float64)\n" + RIGHT, "no fault", ""),
    ("x = " + "(" * 5000 + ")" * 5000, "cannot tell", "nested"),
    ("x = 1" + "+1" * 100_000, "cannot tell", ""),
    ("x = '\\0'\n\0", "cannot tell", "null"),
    ("\ufeff" + RIGHT, "no fault", ""),
    ("#" * (LARGEST + 1), "cannot tell", "larger than 4 MiB"),
]


@forks
def test_odd_files_and_the_next(tmp_path: Path) -> None:
    """Each in its turn, a right one after it; nothing of it is a fault of ours."""
    names = []
    for number, (source, _, _) in enumerate(FILES):
        for name, text in ((f"odd{number}.py", source), (f"right{number}.py", RIGHT)):
            (tmp_path / name).write_text(text, encoding="utf-8", newline="")
            names.append(str(tmp_path / name))
    flags = ["--json", "--timeout", "8"]
    ran = command("-m", "steps.step23", "--quiet", *flags, *names)
    found = [json.loads(line) for line in ran.out.splitlines()]
    assert [one["file"] for one in found] == names
    assert {one["verdict"] for one in found[1::2]} == {"no fault"}
    for (source, verdict, said), one in zip(FILES, found[::2], strict=True):
        assert one["verdict"] == verdict, (source[-300:], one["message"])
        assert said in one["message"] + one["statement"], source[-300:]
        if verdict == "fault":
            assert one["line"] == WRONG_LINE + 1
    assert ran.err == ""
    assert ran.code == 1


@forks
def test_files_without_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "silent.py")
    os.mkfifo(tmp_path / "told.py")
    (tmp_path / "endless.py").symlink_to("/dev/zero")
    (tmp_path / "empty.py").symlink_to("/dev/null")
    (tmp_path / "right.py").write_text(RIGHT)
    order = ["silent", "endless", "empty", "right", "told", "right"]
    names = [str(tmp_path / f"{name}.py") for name in order]
    told = (tmp_path / "told.py").write_text
    threading.Thread(target=told, args=[RIGHT], daemon=True).start()
    ran = command("-m", "steps.step23", "--json", "--timeout", "5", *names)
    found = [json.loads(line) for line in ran.out.splitlines()]
    assert [one["verdict"] for one in found] == ["cannot tell"] * 3 + ["no fault"] * 3
    said = [one["message"] for one in found]
    assert "nothing came within the time limit" in said[0]
    assert "larger than" in said[1]
    assert "no nn.Module" in said[2]


@forks
def test_names_that_no_terminal_should_be_given(tmp_path: Path) -> None:
    names = [b"new\nline.py", b"bell\x07.py", b"red\x1b[31m.py", b"byte\xff.py"]
    files = [os.path.join(os.fsencode(tmp_path), name) for name in names]
    for number, file in enumerate(files):
        Path(os.fsdecode(file)).write_text(RIGHT if number % 2 else "class X: pass")
    run = [sys.executable, "-m", "steps.step23", "--build", "x", *files]
    for extra in ([], ["--json"]):
        done = subprocess.run(
            [*run, *extra], cwd=ROOT, capture_output=True, timeout=PATIENCE
        )
        assert (done.returncode, done.stderr) == (2, b"")
        shown = done.stdout.decode("ascii")
        assert all(c.isprintable() or c == "\n" for c in shown)
        if extra:
            told = [json.loads(line)["file"] for line in shown.splitlines()]
            assert told == [os.fsdecode(file) for file in files]
        else:
            shown = "".join(shown.split())  # wherever a line was broken
            for name in (r"new\nline", r"bell\x07", r"red\x1b[31m", r"byte\udcff"):
                assert f"{name}.py:cannottell" in shown


# ------------------------------------------------------------- in the same process


def attention(folder: Path, act: Callable[[], object]) -> nn.Module:
    """A right module that does something more when it is called."""
    file = folder / "acting.py"
    file.write_text(starting("act()"))
    names = {"act": act}
    exec(compile(file.read_text(), str(file), "exec"), names)
    return names["Attention"](12, 3, 9)  # type: ignore[call-arg, return-value]


def test_two_threads_at_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Each gets its report, and what is printed afterwards is seen."""
    streams = sys.stdout, sys.stderr, sys.stdin
    modules = [attention(tmp_path, lambda: print(time.sleep(0.01))) for _ in range(2)]
    both = threading.Barrier(2)

    def run(module: nn.Module) -> str:
        both.wait(60)
        return diagnose(module).verdict

    with ThreadPoolExecutor() as together:
        verdicts = list(together.map(run, modules))
    assert verdicts == ["no fault"] * 2
    assert (sys.stdout, sys.stderr, sys.stdin) == streams
    print("seen")
    assert capsys.readouterr().out == "seen\n"


@forks
def test_a_fork_by_another_thread_lives_on(tmp_path: Path) -> None:
    """It is none of the module's; one that the module forks ends at once."""
    forks = (
        starting("once()")
        + """
import os, sys, threading
from steps.debugger import diagnose

inside, forked, codes = threading.Event(), threading.Event(), []

def wait_for(child):
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

def other():
    inside.wait()
    child = os.fork()
    if child == 0:
        print("the other's child", flush=True)
        print(diagnose(Attention(12, 3, 9)).verdict, flush=True)
        os._exit(7)
    forked.set()
    wait_for(child)

def once():
    if not inside.is_set():
        inside.set()
        forked.wait()
        child = os.fork()
        if child == 0:
            os._exit(9)
        wait_for(child)

thread = threading.Thread(target=other)
thread.start()
print(diagnose(Attention(12, 3, 9)).verdict, flush=True)
thread.join()
print(sorted(codes))
"""
    )
    (tmp_path / "forks.py").write_text(forks)
    script = str(tmp_path / "forks.py")
    lines_whole = {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}
    ran = command("-W", "ignore", script, **lines_whole)
    lines = ran.out.splitlines()
    assert sorted(lines[:-1]) == ["no fault", "no fault", "the other's child"]
    assert lines[-1] == "[0, 7]"
    assert (ran.code, ran.err) == (0, "")


def state() -> dict[str, Any]:
    """What belongs to the whole process."""
    handlers = {n: signal.getsignal(n) for n in signal.valid_signals()}
    limits = {n: resource.getrlimit(n) for n in (resource.RLIMIT_NOFILE,)}
    return {
        "handlers": handlers,
        "limits": limits,
        "recursion": sys.getrecursionlimit(),
        "garbage": (gc.isenabled(), gc.get_threshold()),
        "trace": (sys.gettrace(), sys.getprofile()),
        "dtype": torch.get_default_dtype(),
        "random": (random.getstate(), torch.get_rng_state().tolist()),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "path": list(sys.path),
        "arguments": list(sys.argv),
        "names": (torch.softmax, nn.Linear.forward, "softmax" in vars(torch.Tensor)),
        "timers": [signal.getitimer(n) for n in (signal.ITIMER_PROF,)],
    }


def unsettle() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, 1000)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    sys.setrecursionlimit(999)
    gc.disable()
    gc.set_threshold(7)
    sys.setprofile(lambda *_: None)
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(5)
    random.seed(5)
    os.environ["MINE"] = "1"
    os.chdir("/")
    sys.path.append("/nowhere")
    sys.argv.append("more")
    torch.softmax = print
    nn.Linear.forward = print  # type: ignore[method-assign, assignment]
    torch.Tensor.softmax = print  # type: ignore[method-assign, assignment]


def test_what_a_module_sets_is_put_back(tmp_path: Path) -> None:
    before = state()
    with contained() as seen:
        unsettle()
        replaced = seen.replaced()
    assert state() == before
    assert {"torch.softmax", "torch.nn.modules.linear.Linear.forward"} < {*replaced}
    ignore = attention(tmp_path, lambda: signal.signal(signal.SIGINT, print))
    before = state()
    assert diagnose(ignore).verdict == "no fault"
    assert state() == before


def test_a_timer_of_the_host_goes_on() -> None:
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.4, 0)
        with contextlib.suppress(TooLong), contained(), limited(0.1):
            time.sleep(5)
        assert rung == []
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] < 0.35
        time.sleep(0.5)
        assert rung == [1]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_one_inside_another(tmp_path: Path) -> None:
    """A file that asks for its own diagnosis is examined all the same."""
    file = tmp_path / "mine.py"
    file.write_text(
        RIGHT + "\n\nfrom steps.debugger import diagnose\nprint(diagnose(Attention))\n"
    )
    streams = sys.stdout, sys.stderr
    assert examine_file(str(file)).verdict == "no fault"
    assert (sys.stdout, sys.stderr) == streams
    assert contain.RUNNING == []


def test_a_fault_of_ours_in_this_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from steps.debugger import examine

    def broken(*_: Any) -> None:
        raise LookupError("ours")

    monkeypatch.setattr(examine, "examine_classes", broken)
    file = tmp_path / "mine.py"
    file.write_text(RIGHT)
    found = examine_file(str(file))
    assert found.verdict == "cannot tell"
    assert "the debugger failed: LookupError: ours" in found.message
    assert "report" in found.message
    assert "in broken\n" in capsys.readouterr().err


MAINS: list[Callable[[], Any]] = [
    lambda: command_main(["--list"]),
    lambda: command_main(["--steps-of-nothing"]),
    lambda: step_main(["--text", "a b"]),
    lambda: step_main(["file.py", "--timeout", "x"]),
]


def command_main(argv: list[str]) -> None:
    from steps.command import main

    main(argv)


def step_main(argv: list[str]) -> None:
    from steps.debugger.command import step

    step(str(ROOT / "steps" / "step23.py"), argv)


@pytest.mark.parametrize("run", MAINS)
def test_main_as_a_function_leaves_streams_and_garbage(
    run: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    err = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="namereplace")
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.setattr(sys, "stdin", None)
    frozen = gc.get_freeze_count()
    with pytest.raises(SystemExit):
        run()
    assert (sys.stdout, sys.stderr, sys.stdin) == (out, err, None)
    assert (out.errors, err.errors) == ("strict", "namereplace")
    assert gc.get_freeze_count() == frozen
    assert gc.isenabled()


@forks
def test_check_as_a_function_leaves_no_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import subprocess; subprocess.Popen(['sleep', '600'])\n" + RIGHT)
    handlers = {n: signal.getsignal(n) for n in signal.valid_signals()}
    descriptors = os.listdir("/proc/self/fd")
    assert check([str(file)] * 3, jobs=2) == 0
    assert capsys.readouterr().out.count("no fault") == 3
    assert handlers == {n: signal.getsignal(n) for n in signal.valid_signals()}
    assert os.listdir("/proc/self/fd") == descriptors
    assert Path("/proc/self/task").is_dir()
    lists = Path("/proc/self/task").glob("*/children")
    assert not any(path.read_text().split() for path in lists)


def test_the_program_names_its_jobs() -> None:
    assert "--jobs" in command(PROGRAM, "--help").out
