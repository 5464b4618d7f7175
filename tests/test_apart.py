"""What a reader's file does to the process that runs it ends with that process."""

import json
from pathlib import Path

import pytest
from program import ROOT, command

from steps.debugger.apart import FORKS, apart
from steps.debugger.result import Diagnosis

RIGHT = (ROOT / "steps" / "attention.py").read_text(encoding="utf-8")
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
    "import os; os.close(1); import sys; sys.exit(3)": "SystemExit: 3",
    "raise KeyboardInterrupt": "KeyboardInterrupt",
    "class Odd(BaseException): pass\nraise Odd('of its own')": "of its own",
    "import time, signal; signal.setitimer(signal.ITIMER_REAL, 0); time.sleep(99)": (
        "did not come back"
    ),
    CLASS.format(made="raise SystemExit", run="pass"): "line 7",
    CLASS.format(made="exit()", run="pass"): "line 7",
    CLASS.format(made="pass", run="import os; os._exit(1)"): "ended the process",
}
# What would spoil the next file, were it in the same process.
SPOILS = (
    "import torch; torch.softmax = lambda *_, **__: None",
    "import torch; torch.nn.Linear = None",
    "import builtins; builtins.print = None",
    "import sys; del sys.modules['torch.nn']",
    "import torch; torch.set_default_device('meta')",
    "import threading, time; threading.Thread(target=time.sleep, args=(9999,)).start()",
    "import subprocess; subprocess.Popen(['sleep', '9999'])",
    "import subprocess, sys; subprocess.call([sys.executable, '-c', 'input()'])",
    "import os; os.write(1, b'a word'); os.write(2, b'another')",
)


@pytest.mark.skipif(not FORKS, reason="only where a process can be forked")
def test_no_file_reaches_the_next(tmp_path: Path) -> None:
    files = []
    for number, source in enumerate([*DOINGS, *SPOILS]):
        files.append(tmp_path / f"file{number}.py")
        files[-1].write_text(source, encoding="utf-8")
    right = tmp_path / "right.py"
    right.write_text(RIGHT, encoding="utf-8")
    order = [file for file in files for file in (file, right)]
    names = [str(file) for file in order]
    ran = command("-m", "steps.step23", "--json", "--timeout", "20", *names)
    answers = [json.loads(line) for line in ran.out.splitlines()]
    assert [answer["file"] for answer in answers] == names
    assert {answer["verdict"] for answer in answers[1::2]} == {"no fault"}
    for answer, said in zip(answers[::2], DOINGS.values(), strict=False):
        assert answer["verdict"] == "cannot tell"
        assert said in answer["message"]
        assert "\n" not in answer["message"]
    assert ran.code == 2
    assert ran.err == ""


def test_what_is_found_is_given_back_whole() -> None:
    found = Diagnosis("mine.py", "fault", line=3, trace=[{"values": "x" * 2**20}])
    assert apart(lambda: found, "mine.py", 9) == found
