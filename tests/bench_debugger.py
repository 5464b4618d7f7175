"""What the debugger costs, as ratios of paired and interleaved runs.

    python tests/bench_debugger.py [rounds]

One file against `python -c "import torch"`; each further file of one call, one at a
time, in seconds; and a forward pass under the recorder against the same pass alone.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from bench import quartiles

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

MORE = 30  # files in one call
SIZES = (4, 512, 768, 12)  # sequences, tokens, width, heads


def command(arguments: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, stdout=subprocess.DEVNULL, check=False
    )
    return time.perf_counter() - start


def copies(folder: str) -> list[str]:
    """The chapter's class in MORE files, each a module of its own."""
    source = (ROOT / "steps" / "attention.py").read_text(encoding="utf-8")
    source = source.replace(
        "from steps.pytorch import nn, torch", "import torch\nfrom torch import nn"
    )
    files = []
    for number in range(MORE):
        file = Path(folder, f"attention_{number}.py")
        file.write_text(source, encoding="utf-8")
        files.append(str(file))
    return files


def recording(rounds: int) -> list[float]:
    """Ratios of a recorded forward pass to a plain one."""
    from steps import attention
    from steps.pytorch import seeded, torch
    from steps.walk.recorder import Recorder

    b, num_tokens, width, heads = SIZES
    with seeded(0):
        module = attention.MultiHeadAttention(
            width, width, num_tokens, 0.0, heads
        ).eval()
        x = torch.randn(b, num_tokens, width)

    def plain() -> None:
        module(x)

    def recorded() -> None:
        with Recorder([attention.__file__], small=0, origins=False):
            module(x)

    def seconds(run: Callable[[], None]) -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    ratios = []
    with torch.no_grad():
        for run in (plain, recorded):
            run()
        for turn in range(rounds):
            pair = (plain, recorded) if turn % 2 else (recorded, plain)
            times = {run: seconds(run) for run in pair}
            ratios.append(times[recorded] / times[plain])
    return ratios


def main(rounds: int = 7) -> None:
    bare = ["-W", "ignore", "-c", "import torch"]
    with tempfile.TemporaryDirectory() as folder:
        files = copies(folder)
        check = ["-m", "steps.step23", "--jobs", "1"]
        command(bare)
        ones, manys, imports = [], [], []
        for _ in range(rounds):
            imports.append(command(bare))
            ones.append(command([*check, files[0]]))
            manys.append(command([*check, *files]))
    ratios = [one / alone for one, alone in zip(ones, imports, strict=True)]
    each = [(many - one) / (MORE - 1) for many, one in zip(manys, ones, strict=True)]
    print("The debugger: median (quartiles)")
    shown = quartiles(ratios, 2)
    print(f"one file               ratio to import torch {shown}, target 1.30")
    print(f"each further file      seconds {quartiles(each, 2)}, target 0.08")
    sizes = f"recording at {SIZES}"
    print(f"{sizes}: ratio {quartiles(recording(3 * rounds), 2)}, target 1.05")
    print(f"(import torch: {median(imports):.2f} s)")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
