"""What the walk itself costs at a real size: 1,024 tokens, 12 heads of 64.

The same steps run in turns, each time in a fresh process: as the walk (recorded and
written out as text) and plain (the same functions, nothing recorded, nothing written;
step 21 alone keeps its record, which its notes are about). Memory is the peak beyond
what the process had after importing torch.

    python tests/bench_scale.py [rounds]
"""

import json
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

SENTENCE = "The river bank was muddy"
FLAGS = ["--text", " ".join([SENTENCE] * 205), "--d-in", "768"]
FLAGS += ["--heads", "12", "--head-dim", "64"]
TARGETS = {"seconds": 1.25, "bytes": 1.15}


def once(recorded: bool) -> dict[str, float]:
    """Every step once, in this process: seconds and peak bytes."""
    from steps.scale.timing import status
    from steps.walk.command import parser, settings
    from steps.walk.order import Walk, titles
    from steps.walk.recorder import Recorder  # noqa: F401  imported before the clock
    from steps.walk.text import Text

    class Plain(Walk):
        def recorder(self, title: Any, arguments: Any) -> Any:
            watched = title.number == 21  # whose claims read the record
            return super().recorder(title, arguments) if watched else nullcontext()

    values, _ = settings(parser("", "").parse_args(FLAGS))
    numbers = [title.number for title in titles()]
    walk, text = (Walk if recorded else Plain)(values), Text()
    before, start = status("VmHWM"), time.perf_counter()
    for block in walk.blocks(numbers):
        if recorded:
            text.block(block)
    took = time.perf_counter() - start
    return {"seconds": took, "bytes": status("VmHWM") - before, "T": values["T"]}


def apart(kind: str) -> dict[str, float]:
    """`once`, in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, kind], cwd=ROOT, check=True, capture_output=True
    )
    return json.loads(done.stdout)


def main(rounds: int = 3) -> None:
    if not Path("/proc/self/status").exists():
        print("the walk at a real size: not measured, this system has no /proc")
        return
    pairs = [(apart("walk"), apart("plain")) for _ in range(rounds)]
    T = pairs[0][0]["T"]
    print(f"The walk at {T} tokens, 12 heads of 64, to the same steps unrecorded:")
    for what, scale, unit in (("seconds", 1, "s"), ("bytes", 2**20, "MiB")):
        ratios = [walk[what] / plain[what] for walk, plain in pairs]
        walk, plain = (median(pair[i][what] / scale for pair in pairs) for i in (0, 1))
        spread = f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        amounts = f"{walk:.1f} {unit} to {plain:.1f} {unit}"
        print(f"  {what:<8} ratio {spread}, target {TARGETS[what]}; {amounts}")


if __name__ == "__main__":
    if sys.argv[1:2] in (["walk"], ["plain"]):
        print(json.dumps(once(sys.argv[1] == "walk")))
    else:
        main(*map(int, sys.argv[1:2]))
