"""A page in the browser, for the tests: what is on it, and what it complained about."""

# ruff: noqa: E501 -- scripts for the browser are easier to read unbroken

import json
from pathlib import Path
from typing import Any

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
KINDS = ["same", "near-from", "near-to", "far-from", "far-to"]


def data_of(file: Path) -> dict[str, Any]:
    """The record in a page."""
    text = file.read_text(encoding="utf-8")
    return json.loads(text.split('id="data">')[1].split("</script>")[0])


def place_of(data: dict[str, Any], name: str, last: int = 19) -> int:
    """The place of the walk's own tensor of a name, up to a step."""
    return max(
        at
        for at, made in enumerate(data["tensors"])
        if made["name"] == name and "wrong" not in made and made["step"] <= last
    )


def element(data: dict[str, Any], place: int, index: tuple[int, ...]) -> int:
    """An index counted through, in reading order."""
    flat = 0
    for i, size in zip(index, data["tensors"][place]["shape"], strict=True):
        flat = flat * size + i
    return flat


class Opened:
    """A page in the browser."""

    def __init__(
        self, browser: Any, file: Path, address: str = "", **context: Any
    ) -> None:
        context.setdefault("viewport", {"width": 1440, "height": 900})
        self.file, self.data = file, data_of(file)
        self.tab = browser.new_context(**context).new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.on("console", lambda message: self.complaints.append(message.text))
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.goto(file.as_uri() + address)

    def close(self) -> None:
        """Close it; it must have asked for nothing and complained of nothing."""
        assert {url.partition("#")[0] for url in self.requests} == {self.file.as_uri()}
        assert self.complaints == []
        self.tab.context.close()

    def cell(self, name: str, *index: int, within: str = "#picture") -> Any:
        """The cell of an element."""
        place = place_of(self.data, name)
        e = element(self.data, place, index)
        return self.tab.locator(f"{within} [data-t='{place}'] td[data-e='{e}']").first

    def point(self, name: str, *index: int, within: str = "#picture") -> None:
        """Point at a cell, and wait until that has been seen."""
        self.cell(name, *index, within=within).hover()
        self.frame()

    def frame(self) -> None:
        """Let the browser draw."""
        self.tab.evaluate(
            "() => new Promise(run => requestAnimationFrame(() => requestAnimationFrame(run)))"
        )

    def lit(self, name: str, kinds: str, within: str = "#picture") -> set[int]:
        """The elements of a tensor that are shown in one of these ways."""
        place = place_of(self.data, name)
        return set(
            self.tab.evaluate(
                """([place, kinds, within]) => [...document.querySelectorAll(`${within} [data-t="${place}"] td[data-e]`)]
                    .filter(td => kinds.split(" ").some(kind => td.classList.contains(kind))).map(td => Number(td.dataset.e))""",
                [place, kinds, within],
            )
        )

    def values(self, name: str, within: str = "#picture") -> list[str]:
        """The numbers of a tensor as they are read."""
        place = place_of(self.data, name)
        return self.tab.evaluate(
            """([place, within]) => [...document.querySelectorAll(`${within} [data-t="${place}"] td[data-e]`)].map(td => td.textContent)""",
            [place, within],
        )

    def text(self, selector: str) -> str:
        return self.tab.locator(selector).first.inner_text()

    def open_step(self, number: int) -> Any:
        """Open a step as a reader does; its section."""
        section = self.tab.locator(f"#step{number}")
        if section.locator("details.fold").get_attribute("open") is None:
            section.locator("summary").first.click()
        section.locator(".inside > *").first.wait_for()
        return section

    def axe(self) -> list[str]:
        """What axe-core finds wrong."""
        import axe_playwright_python

        script = Path(axe_playwright_python.__file__).with_name("axe.min.js")
        self.tab.evaluate(script.read_text(encoding="utf-8"))
        found = self.tab.evaluate("() => axe.run({resultTypes: ['violations']})")
        assert len(found["passes"]) > 10
        return [
            f"{v['id']}: {n['html'][:200]}: {n['failureSummary']}"
            for v in found["violations"]
            for n in v["nodes"][:3]
        ]
