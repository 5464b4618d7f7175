"""What a reader's file does to the process that runs it ends with that process."""

import json
import math
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from program import ROOT, command, main

from steps.debugger import apart
from steps.debugger.answer import TYPES, packed, unpacked
from steps.debugger.apart import FORKS, side_by_side
from steps.debugger.command import check
from steps.debugger.result import Diagnosis
from steps.pytorch import torch

forks = pytest.mark.skipif(not FORKS, reason="only where a process can be forked")
RIGHT = (ROOT / "steps" / "attention.py").read_text(encoding="utf-8")
FORGED = json.dumps(vars(Diagnosis("mine.py", "no fault"))).encode()
CLASS = """
from torch import nn

class Attention(nn.Module):
    def __init__(self, d_in, d_out, context_length, dropout, num_heads):
        super().__init__()
        {made}

    def forward(self, x):
        {run}
        return x
"""

# What a file does, and what is then said of it.
DOINGS = {
    "import os; os._exit(0)": "ended the process",
    "import os; os.kill(os.getpid(), 11)": "SIGSEGV",
    "import os; os.kill(os.getpid(), 40)": "signal 40",
    "import os; os.close(1); import sys; sys.exit(3)": "SystemExit: 3",
    "raise KeyboardInterrupt": "KeyboardInterrupt",
    "class Odd(BaseException): pass\nraise Odd('of its own')": "of its own",
    "import time, signal; signal.setitimer(signal.ITIMER_REAL, 0); time.sleep(99)": (
        "did not come back"
    ),
    CLASS.format(made="raise SystemExit", run="pass"): "line 7",
    CLASS.format(made="exit()", run="pass"): "line 7",
    CLASS.format(made="pass", run="import os; os._exit(1)"): "ended the process",
    "import torch; torch.softmax = lambda *_, **__: None": "replaces torch.softmax",
    "import torch; torch.nn.Linear = None": "replaces torch.nn.Linear",
    "from torch import nn; nn.Linear.__call__ = print": "linear.Linear.__call__",
    "import torch; torch.Tensor.softmax = print": "torch.Tensor.softmax",
    "import math; del math.sqrt": "replaces math.sqrt",
    "from steps.debugger import examine as e; e.best_run = print": "examine.best_run",
}
# What would spoil the next file, were it in the same process.
SPOILS = (
    "import builtins; builtins.print = None",
    "import sys; del sys.modules['torch.nn']",
    "import torch; torch.set_default_device('meta')",
    "import threading, time; threading.Thread(target=time.sleep, args=(9999,)).start()",
    "import subprocess; subprocess.Popen(['sleep', '9999'])",
    "import subprocess, sys; subprocess.call([sys.executable, '-c', 'input()'])",
    "import os; os.write(1, b'a word'); os.write(2, b'another')",
)


@forks
def test_no_file_reaches_the_next(tmp_path: Path) -> None:
    files = []
    for number, source in enumerate([*DOINGS, *SPOILS]):
        files.append(tmp_path / f"file{number}.py")
        files[-1].write_text(source, encoding="utf-8")
    right = tmp_path / "right.py"
    right.write_text(RIGHT, encoding="utf-8")
    order = [file for file in files for file in (file, right)]
    names = [str(file) for file in order]
    ran = command("-m", "steps.step23", "--quiet", "--json", "--timeout", "10", *names)
    answers = [json.loads(line) for line in ran.out.splitlines()]
    assert [answer["file"] for answer in answers] == names
    assert {answer["verdict"] for answer in answers[1::2]} == {"no fault"}
    for answer, said in zip(answers[::2], DOINGS.values(), strict=False):
        assert answer["verdict"] == "cannot tell"
        assert said in answer["message"]
        assert "\n" not in answer["message"]
    assert ran.code == 2
    assert ran.err == ""


def found_by(
    *examine: Callable[[], Diagnosis], timeout: float = 20, **options: object
) -> list[Diagnosis]:
    """What side_by_side shows of files that are examined so."""
    shown: list[Diagnosis] = []
    work = [(f"file{number}.py", run) for number, run in enumerate(examine)]
    side_by_side(work, shown.append, timeout, **options)  # type: ignore[arg-type]
    return shown


def after(act: Callable[[], object]) -> Callable[[], Diagnosis]:
    """An examination that does something and then finds a fault."""

    def examine() -> Diagnosis:
        said = act()
        return Diagnosis("another's name", "fault", line=3, message=str(said))

    return examine


ROW = {
    "line": 3,
    "column": 1,
    "end_line": 3,
    "end_column": 9,
    "statement": "q = x",
    "expression": "x",
    "name": "q",
    "function": "linear",
    "shape": [2, 3],
    "stage": "queries",
    "axes": ["B", "T"],
    "origin": "computed",
    "ok": True,
    "first_wrong": False,
    "follows": False,
}


@forks
def test_what_is_found_is_given_back_whole() -> None:
    rows = []
    for number, dtype in enumerate(TYPES.values()):
        values = torch.arange(6).reshape(3, 2).T.to(dtype)  # not as it lies
        rows.append(ROW | {"line": number, "values": values})
    rows.append(ROW | {"shape": [0, 3], "values": torch.zeros(0, 3)})
    rows.append(ROW | {"shape": [], "values": torch.tensor(math.nan)})
    whole = Diagnosis("x", "no fault", column=2, trace=rows, notes=["\udcff\x1b", "é"])
    (back,) = found_by(lambda: whole, values=True)
    assert back.json() == whole.json().replace('"x"', '"file0.py"', 1)
    assert back.file == "file0.py"
    for row, given_row in zip(back.trace, rows, strict=True):
        assert row["values"].dtype == given_row["values"].dtype
        assert torch.equal(
            row["values"].nan_to_num(7), given_row["values"].nan_to_num(7)
        )
    (back,) = found_by(lambda: whole)
    assert not any("values" in row for row in back.trace)


def test_more_than_there_is_room_for_is_left_out() -> None:
    values = torch.ones(100, 10, dtype=torch.float64)
    row = ROW | {"shape": [100, 10], "values": values}
    found = Diagnosis("x", "fault", trace=[row] * 4, message="m" * 20_000)
    back, _ = unpacked(packed(found, 13_000 + 2 * values.nbytes, values=True))
    assert ["values" in row for row in back.trace] == [True, True, False, False]
    assert len(back.message) == 10_000
    back, told = unpacked(packed(found, 11_000, values=True, traceback="told"))
    assert (back.verdict, back.trace, told) == ("fault", [], "told")


GOOD = packed(
    Diagnosis("x", "fault", trace=[ROW | {"values": torch.ones(2, 3)}]), 2**16, True
)


def checked(data: bytes) -> Diagnosis | None:
    """What bytes are taken for; all that may be in it can be shown."""
    try:
        found, _ = unpacked(data)
    except ValueError:
        return None
    assert found.verdict in ("fault", "no fault", "cannot tell")
    assert json.loads(found.json())["trace"] is not None
    assert str(found).isascii()
    return found


@settings(deadline=None)
@given(st.binary(max_size=200), st.integers(0, len(GOOD)), st.integers(0, 200))
def test_bytes_that_are_no_answer(data: bytes, at: int, over: int) -> None:
    assert checked(data) is None
    checked(GOOD[:at] + data + GOOD[at + over :])
    assert checked(GOOD[:at]) is None or at == len(GOOD)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*ROW, "values"]), inner, max_size=3)
    ),
)


@settings(deadline=None)
@given(st.sampled_from(["verdict", "line", "notes", "trace", "statement"]), JSON)
def test_fields_of_another_type(name: str, value: object) -> None:
    document = json.loads(GOOD[8:-24]) | {name: value}
    text = json.dumps(document).encode()
    data = len(text).to_bytes(8, "big") + text + GOOD[-24:]
    found = checked(data)
    if found is not None and name == "notes":
        assert all(type(note) is str for note in found.notes)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"ok": true', b'"ok": 2222'),
        (b'"line": 3', b'"line": 3.'),
        (b'"first_wrong"', b'"first_wromg"'),
        (b"[2, 3]", b"[2, 4]"),
        (b"[2, 3]", b"[-2,-3]"),
        (b"[2, 3]", b"[2, 9999999999999999999]"),
        (b"torch.float32", b"torch.complex"),
        (b'"fault"', b'"folly"'),
        (b'"line": null', b'"line": NaN'),
        (b'"line": null', b'"line": ' + b"[" * 100_000),
        (b'"line": null', b'"line": ' + b"9" * 100_000),
        (b'"got": ""', b'"got": "' + b"x" * 10_001 + b'"'),
        (b'"got": ""', b'"got": "", "more": 1'),
    ],
)
def test_an_answer_of_another_shape(old: bytes, new: bytes) -> None:
    text, values = GOOD[8:-24], GOOD[-24:]
    assert old in text
    text = text.replace(old, new, 1)
    assert checked(len(text).to_bytes(8, "big") + text + values) is None


# Into every descriptor there is.
EVERYWHERE = """
import os
def everywhere(data):
    for descriptor in range(256):
        try:
            os.write(descriptor, data)
        except OSError:
            continue
"""


@forks
def test_nothing_that_a_file_writes_is_an_answer(tmp_path: Path) -> None:
    """Nor does what it closes or floods keep one from being given."""
    forged = len(FORGED).to_bytes(8, "big") + FORGED
    sources = {
        "garbage": EVERYWHERE + "everywhere(b'garbage' * 100)\n" + RIGHT,
        "closed": "import os; os.closerange(0, 4096)\n" + RIGHT,
        "forged": EVERYWHERE + f"everywhere({forged!r}); os._exit(0)",
        "flood": EVERYWHERE + "while True: everywhere(b'x' * 4096)",
        "right": RIGHT,
    }
    files = []
    for name, source in sources.items():
        files.append(tmp_path / f"{name}.py")
        files[-1].write_text(source, encoding="utf-8")
    flags = ["--quiet", "--json", "--timeout", "9"]
    ran = command("-m", "steps.step23", *flags, *map(str, files))
    assert ran.err == ""
    found = [json.loads(line) for line in ran.out.splitlines()]
    right, none = "no fault", "cannot tell"
    assert [one["verdict"] for one in found] == [right, right, none, none, right]
    assert "ended the process" in found[2]["message"]
    assert "9 seconds" in found[3]["message"]


@forks
def test_an_answer_that_is_damaged_is_none() -> None:
    damaged = Diagnosis("x", "no fault", notes=[3])  # type: ignore[list-item]
    found = found_by(lambda: damaged, after(str))
    assert [one.verdict for one in found] == ["cannot tell", "fault"]
    assert "wrote over" in found[0].message


@forks
def test_the_deadline_holds_whatever_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "GRACE", 0.3)

    def flood() -> None:
        while True:
            os.write(1, b"x" * 4096)

    start = time.monotonic()
    late = after(lambda: time.sleep(1.5))  # and would answer then
    stopped = after(lambda: os.kill(os.getpid(), signal.SIGSTOP))
    found = found_by(after(flood), late, stopped, after(str), timeout=0.3, jobs=4)
    assert time.monotonic() - start < 15
    assert [one.verdict for one in found] == ["cannot tell"] * 3 + ["fault"]
    assert all("0.3 seconds" in one.message for one in found[:3])


@forks
def test_files_are_examined_side_by_side_and_shown_in_order(tmp_path: Path) -> None:
    def meet(mine: str, other: str) -> Callable[[], Diagnosis]:
        def wait() -> None:
            (tmp_path / mine).touch()
            while not (tmp_path / other).exists():
                time.sleep(0.01)

        return after(wait)

    found = found_by(meet("a", "b"), meet("b", "a"), after(str), jobs=2)
    assert [one.file for one in found] == ["file0.py", "file1.py", "file2.py"]
    assert {one.verdict for one in found} == {"fault"}
    # The last is done long before the first is.
    found = found_by(after(lambda: time.sleep(0.5)), after(str), after(str), jobs=2)
    assert [one.file for one in found] == ["file0.py", "file1.py", "file2.py"]


@forks
def test_reports_are_those_of_one_at_a_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = []
    for number in range(5):
        right = RIGHT if number % 2 else RIGHT.replace("dim=-1", "dim=1")
        files.append(tmp_path / f"file{number}.py")
        files[-1].write_text(right, encoding="utf-8")
    names = [f"{file}:MultiHeadAttention" for file in files]
    for as_json in (False, True):
        shown = []
        for jobs in (1, 3):
            assert check(names, as_json, jobs=jobs) == 1
            shown.append(capsys.readouterr())
        assert shown[0] == shown[1]
    verdicts = [json.loads(line)["verdict"] for line in shown[0].out.splitlines()]
    assert verdicts == ["fault", "no fault", "fault", "no fault", "fault"]


@pytest.mark.parametrize("jobs", ["0", "-1", "x", "1.5", "9999", "²"])
def test_a_number_of_jobs_that_is_none(jobs: str) -> None:
    ran = main("--check", "file.py", "--jobs", jobs)
    assert (ran.code, ran.out) == (2, "")
    assert "--jobs" in ran.err
    assert ran.err.count("\n") == 1
    assert main("--jobs", "2").code == 2  # of --check alone


STRAYS = """
import os, subprocess, time, pathlib
here = pathlib.Path({folder!r})
sleep = ["sleep", "600"]
one = subprocess.Popen(sleep)
two = subprocess.Popen(sleep, start_new_session=True)
# A third, whose parent ends at once, in a session of its own.
three = subprocess.run(
    ["sh", "-c", "setsid sh -c 'echo $$ > {folder}/three; exec sleep 600' & exit"]
)
while not (here / "three").exists() or not (here / "three").read_text().strip():
    time.sleep(0.01)
(here / "own").write_text(f"{{one.pid}} {{two.pid}} {{os.getpid()}}")
"""


def started(folder: Path) -> list[int]:
    """The processes that STRAYS tells of, once it has."""
    until = time.monotonic() + 60
    while not (folder / "own").exists() and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(0.1)
    text = (folder / "own").read_text() + " " + (folder / "three").read_text()
    return [int(word) for word in text.split()]


def alive(process: int) -> bool:
    try:
        return "(zombie)" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


def gone(processes: list[int]) -> bool:
    """Whether none is left within a few seconds."""
    until = time.monotonic() + 5
    while any(map(alive, processes)) and time.monotonic() < until:
        time.sleep(0.02)
    return not any(map(alive, processes))


@forks
@pytest.mark.parametrize("ended", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_what_ends_the_program_ends_the_files(
    tmp_path: Path, ended: signal.Signals
) -> None:
    file = tmp_path / "file.py"
    source = STRAYS.format(folder=str(tmp_path)) + "while True: time.sleep(1)\n"
    file.write_text(source, encoding="utf-8")
    run = [sys.executable, "-m", "steps.step23", str(file)]
    # Whoever started the tests may have these signals ignored (nohup, &).
    heeded = signal.signal(ended, signal.SIG_DFL)
    program = subprocess.Popen(run, cwd=ROOT, stderr=subprocess.DEVNULL)
    signal.signal(ended, heeded)
    try:
        processes = started(tmp_path)
        assert len(processes) == 4
        assert all(map(alive, processes))
        start = time.monotonic()
        program.send_signal(ended)
        code = program.wait(30)
    finally:
        program.kill()
        program.wait()
    assert time.monotonic() - start < 10
    assert code == (130 if ended == signal.SIGINT else -ended)
    assert gone(processes)


@forks
def test_what_a_file_leaves_running_ends_with_it(tmp_path: Path) -> None:
    mine = subprocess.Popen(["sleep", "600"], start_new_session=True)
    seen: list[bool] = []
    try:
        source = STRAYS.format(folder=str(tmp_path))
        handlers = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
        work = [("a.py", after(lambda: exec(source, {})))]
        work += [("b.py", after(lambda: time.sleep(0.3)))]
        side_by_side(work, lambda _: seen.append(gone(started(tmp_path))), 20, 1)
        assert seen == [True, True]  # before the second one ran
        assert mine.poll() is None  # nobody's but ours
        assert handlers == {n: signal.getsignal(n) for n in handlers}
    finally:
        mine.kill()
        mine.wait()


@forks
def test_what_is_raised_while_showing_ends_the_rest(tmp_path: Path) -> None:
    def wait() -> None:
        (tmp_path / "own").write_text(str(os.getpid()))
        (tmp_path / "three").touch()
        time.sleep(600)

    def full(_: Diagnosis) -> None:
        started(tmp_path)
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        side_by_side([("a.py", after(str)), ("b.py", after(wait))], full, 60, 2)
    assert gone(started(tmp_path))


@forks
def test_a_file_is_kept_within_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = {
        "HF_TOKEN": "t",
        "OPENAI_API_KEY": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "PGPASSWORD": "p",
        "MYSQL_PWD": "p",
        "SSH_AUTH_SOCK": "/a",
        "apikey": "k",
        "DATABASE_URL": "postgres://me:word@host/base",
    }
    plain = {"TIKTOKEN_CACHE_DIR": "/x", "MONKEY": "m", "MY_URL": "http://host:80/@a"}
    for name, value in (secrets | plain | {"PWD": str(ROOT)}).items():
        monkeypatch.setenv(name, value)

    def environment() -> list[str]:
        return sorted({*secrets, *plain, "PWD"} & set(os.environ))

    def large_file() -> None:
        with (tmp_path / "large").open("wb") as file:
            file.truncate(2**30)
            file.seek(2**30)
            file.write(b"one too many")

    def limits() -> list[int]:
        kinds = (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC)
        return [resource.getrlimit(kind)[1] for kind in kinds]

    def raised(act: Callable[[], object]) -> Callable[[], object]:
        def run() -> object:
            try:
                return act()
            except Exception as error:
                return error

        return run

    found = found_by(
        after(environment),
        after(raised(large_file)),
        after(raised(lambda: torch.empty(2**32))),  # 16 GiB
        after(raised(lambda: torch.empty(2**28).numel())),  # 1 GiB
        after(limits),
    )
    assert found[0].message == str(sorted([*plain, "PWD"]))
    assert "File too large" in found[1].message
    assert "can't allocate memory" in found[2].message
    assert found[3].message == str(2**28)
    core, size, processes = json.loads(found[4].message)
    assert (core, size) == (0, 2**30)
    assert processes > 0
    assert os.environ["HF_TOKEN"] == "t"


@forks
def test_a_fault_of_ours_is_said_to_be_one(capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> Diagnosis:
        raise LookupError("ours\x1b")

    found = found_by(broken, after(str))
    assert [one.verdict for one in found] == ["cannot tell", "fault"]
    assert "the debugger failed: LookupError" in found[0].message
    assert "report it" in found[0].message
    told = capsys.readouterr().err
    assert "in broken\n" in told
    assert "ours\\x1b" in told


@forks
def test_a_process_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    fork, tried = os.fork, []

    def once() -> int:
        tried.append(1)
        if len(tried) == 1:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return fork()

    monkeypatch.setattr(os, "fork", once)
    found = found_by(after(str), after(str), jobs=2)
    assert [one.verdict for one in found] == ["cannot tell", "fault"]
    assert "Resource temporarily unavailable" in found[0].message
