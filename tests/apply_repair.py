"""Put a report's repair into the file, line by line, and examine the file again.

usage: python tests/apply_repair.py FILE...

Nothing here knows how the debugger finds a repair: it reads the JSON of a run, as an
editor would, and asks once more. Exits 0 when every repair gives "no fault".
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def applied(source: str, repair: Sequence[dict[str, Any]]) -> str:
    """The source with each line that the repair names reading as it says."""
    lines = source.splitlines()
    for change in repair:
        if "\n" in change["new"]:
            raise ValueError(f"not one line: {change['new']!r}")
        lines[change["line"] - 1] = change["new"]
    return "\n".join(lines) + "\n"


def reports(files: Sequence[str]) -> list[dict[str, Any]]:
    """The answers of `python -m steps.step23 --json FILE...`."""
    run = subprocess.run(
        [sys.executable, "-m", "steps.step23", "--json", *files],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
    )
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    if len(answers) != len(files):
        sys.exit(f"tests/apply_repair.py: {run.stderr or run.stdout}")
    return answers


def main(files: Sequence[str]) -> int:
    paths = [Path(file).resolve() for file in files]
    told = zip(paths, reports([str(path) for path in paths]), strict=True)
    repaired = [(path, answer["repair"]) for path, answer in told if answer["repair"]]
    with tempfile.TemporaryDirectory() as folder:
        copies = []
        for number, (path, repair) in enumerate(repaired):
            copies.append(Path(folder, f"repaired_{number}.py"))
            copies[-1].write_text(applied(path.read_text(), repair))
        again = reports([str(copy) for copy in copies]) if copies else []
    right = 0
    for (path, repair), answer in zip(repaired, again, strict=True):
        right += answer["verdict"] == "no fault"
        lines = ", ".join(str(change["line"]) for change in repair)
        print(f"{path.name}: line {lines} changed: {answer['verdict']}")
    print(f"{len(files)} files, {len(repaired)} repairs, {right} give no fault")
    return 0 if right == len(repaired) else 1


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit("usage: python tests/apply_repair.py FILE...")
    sys.exit(main(sys.argv[1:]))
