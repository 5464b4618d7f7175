"""Speed, as ratios of paired and interleaved runs: `make bench`.

python tests/bench.py [pairs]
"""

import importlib
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMPORTS = ["-c", "import torch, tiktoken"]
OTHERS = ("bench_attention", "bench_debugger", "bench_scale", "bench_page")


def seconds(arguments: list[str]) -> float:
    """One run of Python with these arguments, its output thrown away."""
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return time.perf_counter() - start


def quartiles(values: list[float], digits: int) -> str:
    """The median, and the quartiles around it."""
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.{digits}f}  ({low:.{digits}f} to {high:.{digits}f})"


def compare(what: str, arguments: list[str], pairs: int, target: float) -> None:
    """Print the ratio to importing the packages, run for run, and the seconds."""
    ours, imports = [], []
    for turn in range(pairs):
        for mine in (True, False) if turn % 2 else (False, True):
            (ours if mine else imports).append(seconds(arguments if mine else IMPORTS))
    ratios = [a / b for a, b in zip(ours, imports, strict=True)]
    print(f"{what:<22} ratio {quartiles(ratios, 2)}, target {target:.2f}")
    print(f"{'':<22} seconds {quartiles(ours, 2)}; imports {quartiles(imports, 2)}")


def alone(what: str, arguments: list[str], runs: int, target: float) -> None:
    """Print the seconds of a command that imports nothing large."""
    times = [seconds(arguments) for _ in range(runs)]
    print(f"{what:<22} seconds {quartiles(times, 3)}, target {target:.2f}")


def main(pairs: int = 7) -> None:
    seconds(IMPORTS)  # the first run fills the system's file cache
    print("Ratios are to `python -c 'import torch, tiktoken'`: median (quartiles).")
    compare("gptversion.py", ["gptversion.py"], pairs, 1.10)
    compare("steps.step15", ["-m", "steps.step15"], pairs, 1.03)
    compare("steps.step19", ["-m", "steps.step19"], pairs, 1.03)
    alone("gptversion.py --list", ["gptversion.py", "--list"], 2 * pairs, 0.10)
    alone("gptversion.py --help", ["gptversion.py", "--help"], 2 * pairs, 0.10)
    alone("python -c pass", ["-c", "pass"], 2 * pairs, 0.10)
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    for name in OTHERS:
        print()
        importlib.import_module(name).main()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
