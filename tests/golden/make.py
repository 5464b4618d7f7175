"""Write the golden transcripts and the table of their tensors anew:

python tests/golden/make.py
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).resolve().parent
PROGRAM = GOLDEN.parent.parent / "gptversion.py"


def tensors(walk: dict[str, Any]) -> list[str]:
    """A line for every tensor of the walk's JSON document, its values left out."""
    return [
        f"step {step['number']}: {tensor['name']}  shape {tensor['shape']}"
        f"  axes {', '.join(tensor['axes'])}  stride {tensor['stride']}"
        f"  {tensor['origin']}, storage of {tensor['shares_storage_with']}"
        for step in walk["steps"]
        for tensor in step["tensors"]
    ]


def run(*flags: str) -> str:
    command = [sys.executable, str(PROGRAM), *flags]
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, encoding="utf-8"
    ).stdout


if __name__ == "__main__":
    for name, flags in (("walk.txt", ()), ("walk_all.txt", ("--all",))):
        (GOLDEN / name).write_text(run(*flags), encoding="utf-8", newline="\n")
    lines = tensors(json.loads(run("--json")))
    (GOLDEN / "tensors.txt").write_text(
        "\n".join(lines) + "\n", encoding="utf-8", newline="\n"
    )
    print(f"{len(lines)} tensors written")
