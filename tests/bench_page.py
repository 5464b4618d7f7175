"""The page: how long it takes to write, to be seen first, and to light up.

python tests/bench_page.py [pairs]
"""

import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from bench import quartiles, seconds
from opened import FLAGS

WRITTEN, SIZE, PAINT, LIT = 1.5, 300_000, 0.8, 16.0
# Choose every number of the picture by a click, and measure the script of each.
CLICKS = """() => [...document.querySelectorAll('#picture td[data-e]')].map(td => {
    const start = performance.now();
    td.click();
    return performance.now() - start;
})"""


def main(pairs: int = 5) -> None:
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        write(page, pairs)
        size = page.stat().st_size
        print(f"{'size':<22} {size:,} bytes, at most {SIZE:,}")
        path = shutil.which("chromium") or shutil.which("chromium-browser")
        if path is None:
            print("no Chromium: not measured in a browser")
            return
        look(page, path, pairs)


def write(page: Path, pairs: int) -> None:
    """The time to write it, by that of the whole run, run for run."""
    runs, pages = [], []
    for _ in range(pairs):
        runs.append(seconds(["gptversion.py"]))
        pages.append(seconds(["gptversion.py", "--page", str(page)]))
    ratios = [a / b for a, b in zip(pages, runs, strict=True)]
    shown = quartiles(ratios, 2)
    print(f"{'--page by whole run':<22} ratio {shown}, at most {WRITTEN}")


def look(page: Path, path: str, runs: int) -> None:
    """First paint, and the script that a click on each number runs."""
    from playwright.sync_api import sync_playwright

    paints, clicks = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        for _ in range(runs):
            tab = browser.new_page(viewport={"width": 1440, "height": 900})
            tab.goto(page.as_uri())
            first = "performance.getEntriesByName('first-contentful-paint')[0]"
            tab.wait_for_function(f"() => {first}")
            paints.append(tab.evaluate(f"{first}.startTime") / 1000)
            clicks += tab.evaluate(CLICKS)
            tab.close()
        browser.close()
    print(f"{'first paint':<22} seconds {quartiles(paints, 2)}, at most {PAINT}")
    slow = statistics.quantiles(clicks, n=20)[-1]
    print(
        f"{'a number chosen':<22} ms {quartiles(clicks, 1)}, 95 % below {slow:.1f}, "
        f"at most {LIT:.0f}"
    )


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    main(*map(int, sys.argv[1:2]))
