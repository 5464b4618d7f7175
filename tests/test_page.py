"""The page: what is written and where, and the page itself in a real browser."""

# ruff: noqa: E501 -- scripts for the browser are easier to read unbroken

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cases import samples
from program import PROGRAM, command, main

from steps.pytorch import torch
from steps.walk import page
from steps.walk.text import LEGEND

CI = bool(os.environ.get("CI"))
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HOSTILE = "one </script><b id=hurt>two</b> <!-- three & \u05e9\u05dc\u05d5\u05dd four"


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default page."""
    file = tmp_path_factory.mktemp("page") / "page.html"
    ran = main("--page", str(file))
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    return file


def data_of(file: Path) -> dict[str, Any]:
    text = file.read_text(encoding="utf-8")
    return json.loads(text.split('id="data">')[1].split("</script>")[0])


# What is written


def test_at_most_300_kilobytes(made: Path) -> None:
    assert made.stat().st_size <= 300_000


def test_the_same_bytes_again(made: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.html"
    ran = command(PROGRAM, "--page", str(other), PYTHONHASHSEED="7")
    assert (ran.code, ran.err) == (0, "")
    assert other.read_bytes() == made.read_bytes()


def test_a_token_beyond_the_tokens_of_step_24_is_followed(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    ran = main("--page", str(file), "--text", "The " * 66 + "river was")
    assert (ran.code, ran.err) == (0, "")
    assert data_of(file)["follow"] == 66


def test_a_text_that_looks_like_a_gap_of_the_template(tmp_path: Path) -> None:
    report = tmp_path / "{{DATA}}.py"
    report.write_text("x = 1\n")
    file = tmp_path / "page.html"
    main("--check", str(report), "--page", str(file))
    assert data_of(file)["text"] == report.name


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no such files here")
def test_a_pipe_is_no_place_for_a_page(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    ran = main("--page", str(tmp_path / "pipe"), "--force")
    assert ran.code == 2
    assert "no ordinary file" in ran.err


def test_nothing_is_loaded_from_anywhere() -> None:
    text = page.TEMPLATE.read_text(encoding="utf-8")
    for sign in (
        "http:",
        "https:",
        "//cdn",
        "src=",
        "@import",
        "url(",
        "<link",
        "fetch(",
        "import(",
    ):
        assert sign not in text, sign


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page without its walk, for tests of where it goes."""
    monkeypatch.setattr(page, "whole_page", lambda settings: page.MARK + "new")


@pytest.mark.usefixtures("quick")
class TestWhereItGoes:
    def test_a_page_of_ours_is_overwritten(self, tmp_path: Path) -> None:
        file = tmp_path / "page.html"
        file.write_text("<!DOCTYPE html>\n" + page.MARK + "old", encoding="utf-8")
        assert main("--page", str(file)).code == 0
        assert file.read_text(encoding="utf-8") == page.MARK + "new"
        assert [f.name for f in tmp_path.iterdir()] == ["page.html"]

    def test_it_says_where(self, tmp_path: Path) -> None:
        ran = main("--page", str(tmp_path / "a\nb\udcff.html"))
        assert ran.out == f"Open {tmp_path}/a\\nb\\udcff.html in a browser.\n"

    def test_a_name_in_it_may_be_no_utf8(self, tmp_path: Path) -> None:
        page.save(tmp_path / "\udcff.html", "of \udcff.py\n")
        assert (tmp_path / "\udcff.html").read_bytes() == b"of \\udcff.py\n"

    @pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")
    def test_a_folder_that_takes_no_files_is_told_before_the_work(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(page, "whole_page", lambda settings: pytest.fail("worked"))
        ran = main("--page", "/proc/page.html")
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert "--page: cannot write '/proc/page.html'" in ran.err

    @pytest.mark.parametrize(
        "error", [MemoryError, KeyboardInterrupt, ZeroDivisionError]
    )
    def test_no_error_leaves_a_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type
    ) -> None:
        def fail(*_: Any) -> None:
            raise error

        monkeypatch.setattr(os, "chmod", fail)
        with pytest.raises(error):
            page.save(tmp_path / "page.html", "text")
        assert list(tmp_path.iterdir()) == []

    def test_anything_else_only_by_force(self, tmp_path: Path) -> None:
        file = tmp_path / "thesis.html"
        file.write_text("years of work", encoding="utf-8")
        ran = main("--page", str(file))
        assert ran.code == 2
        assert ran.err.count("\n") == 1
        assert "--force" in ran.err
        assert file.read_text(encoding="utf-8") == "years of work"
        assert main("--page", str(file), "--force").code == 0
        assert file.read_text(encoding="utf-8") == page.MARK + "new"

    def test_an_empty_file_is_not_ours(self, tmp_path: Path) -> None:
        file = tmp_path / "page.html"
        file.touch()
        assert main("--page", str(file)).code == 2

    @pytest.mark.parametrize("flags", [[], ["--force"]])
    @pytest.mark.parametrize(
        ("name", "says"),
        [
            ("", "directory"),
            ("no/page.html", "no directory"),
            ("f/x.html", "no directory"),
        ],
    )
    def test_places_that_cannot_be(
        self, tmp_path: Path, name: str, says: str, flags: list[str]
    ) -> None:
        (tmp_path / "f").write_text("a file", encoding="utf-8")
        ran = main("--page", str(tmp_path / name), *flags)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.count("\n") == 1
        assert "--page" in ran.err
        assert says in ran.err
        assert [f.name for f in tmp_path.iterdir()] == ["f"]

    def test_never_over_the_file_that_is_examined(self, tmp_path: Path) -> None:
        file = tmp_path / "mine.py"
        file.write_text("years = 'of work'", encoding="utf-8")
        beside = f"{tmp_path}/../{tmp_path.name}/mine.py"
        ran = main("--check", f"{file}:Mine", "--page", beside, "--force")
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.count("\n") == 1
        assert "--page" in ran.err
        assert file.read_text(encoding="utf-8") == "years = 'of work'"

    def test_all_or_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "page.html"
        file.write_text(page.MARK + "old", encoding="utf-8")

        def full(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "replace", full)
        ran = main("--page", str(file))
        assert ran.code == 2
        assert "No space left on device" in ran.err
        assert file.read_text(encoding="utf-8") == page.MARK + "old"
        assert [f.name for f in tmp_path.iterdir()] == ["page.html"]


# In the browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium; without it these tests are skipped, and fail where everything must run."""
    missing = None
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        missing = "Playwright is not installed: pip install -r tests/requirements.txt"
    if not BROWSER:
        missing = "there is no Chromium: apt-get install chromium"
    if missing:
        if CI:
            pytest.fail(missing)
        pytest.skip(missing)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield opened
        opened.close()


class Opened:
    """A page in the browser, and what it asked for and complained about."""

    def __init__(self, browser: Any, file: Path, **context: Any) -> None:
        context.setdefault("viewport", {"width": 1280, "height": 900})
        self.tab = browser.new_page(**context)
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.on("console", lambda message: self.complaints.append(message.text))
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.goto(file.as_uri())

    def cell(self, name: str, *index: int) -> str:
        """A selector for an element of the walk's own tensor of a name."""
        return self.tab.evaluate(
            """([name, index]) => {
                const node = nodes.findLast(node => node.n === name && !node.wrong && node.views.length && node.step <= 19);
                const e = index.reduce((sum, i, k) => sum + i * node.dims[k], 0);
                const cell = node.views[0].cells.find(cell => cell.e === e);
                cell.td.id = "cell-" + node.id + "-" + e;
                return "#" + cell.td.id;
            }""",
            [name, list(index)],
        )

    def lit(self, name: str, kinds: str) -> set[int]:
        """The elements of a tensor that are shown in one of these ways."""
        self.tab.wait_for_function("() => settled")
        return set(
            self.tab.evaluate(
                """([name, kinds]) => {
                    const node = nodes.findLast(node => node.n === name && !node.wrong && node.views.length && node.step <= 19);
                    return node.views[0].cells.filter(cell => kinds.split(" ").some(kind => cell.td.classList.contains(kind))).map(cell => cell.e);
                }""",
                [name, kinds],
            )
        )

    def axe(self) -> list[str]:
        """What axe-core finds wrong, in a step of each kind: all would take minutes."""
        import axe_playwright_python

        script = Path(axe_playwright_python.__file__).with_name("axe.min.js")
        self.tab.evaluate(script.read_text(encoding="utf-8"))
        parts = ["header", "nav", "#path", "#step15", "#step17", "#step22"]
        parts = [part for part in parts if self.tab.query_selector(part)]
        found = self.tab.evaluate("parts => axe.run({include: parts})", parts)
        assert len(found["passes"]) > 10
        return [
            f"{v['id']}: {v['nodes'][0]['html'][:200]}" for v in found["violations"]
        ]


@pytest.fixture
def opened(browser: Any, made: Path) -> Iterator[Opened]:
    page_open = Opened(browser, made)
    yield page_open
    assert page_open.requests == [made.as_uri()]
    assert page_open.complaints == []
    page_open.tab.close()


SIZES = [
    (),
    ("--heads", "3", "--head-dim", "2", "--d-in", "5", "--dropout", "0.05"),
    ("--heads", "1", "--text", "The river bank was muddy and the river was old"),
]


@pytest.fixture(
    scope="session", params=SIZES, ids=["default", "three heads", "one head"]
)
def sized(
    request: pytest.FixtureRequest, made: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    file = made
    if request.param:
        file = tmp_path_factory.mktemp("sized") / "page.html"
        assert main("--page", str(file), *request.param).code == 0
    return file, data_of(file)


def heads_of(data: dict[str, Any]) -> int:
    return next(n["sh"][1] for n in data["nodes"] if n["n"] == "head_queries")


def plain_attention(data: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The walk from x_batch to the end in plain torch, from the page's own numbers."""

    def given(name: str) -> torch.Tensor:
        node = next(n for n in data["nodes"] if n["n"] == name and n["step"] <= 19)
        numbers = [float(value) for value in node["v"]]
        return torch.tensor(numbers, dtype=torch.float64).view(node["sh"])

    made: dict[str, torch.Tensor] = {"x_batch": given("x_batch").requires_grad_()}
    T = made["x_batch"].shape[1]
    heads = given("head_raw_scores").shape[1]
    for role in ("query", "key", "value"):
        many = role[:-1] + "ies" if role == "query" else role + "s"
        made[f"mha_W_{role}.weight"] = given(f"mha_W_{role}.weight").requires_grad_()
        packed = made["x_batch"] @ made[f"mha_W_{role}.weight"].T
        made[f"packed_{many}"] = packed
        by_token = packed.unflatten(-1, (heads, -1))
        made[f"{many}_by_token"] = by_token
        made[f"head_{many}"] = torch.stack(
            [by_token[:, :, h] for h in range(heads)], dim=1
        )
    made["head_raw_scores"] = torch.einsum(
        "bhid,bhjd->bhij", made["head_queries"], made["head_keys"]
    )
    width = made["head_queries"].shape[-1]
    made["scaled"] = made["head_raw_scores"] / width**0.5
    allowed = torch.ones(T, T, dtype=torch.bool).tril()
    made["masked"] = made["scaled"].where(allowed, -torch.inf)
    made["head_attention_weights"] = torch.softmax(made["masked"], dim=-1)
    kept = given("dropped_weights") != 0
    made["dropped_weights"] = made["head_attention_weights"] * kept
    made["head_contexts"] = made["dropped_weights"] @ made["head_values"]
    made["joined_contexts"] = torch.cat(
        [made["head_contexts"][:, h] for h in range(heads)], dim=-1
    )
    made["out_proj.weight"] = given("out_proj.weight").requires_grad_()
    made["mha_context_vectors"] = made["joined_contexts"] @ made["out_proj.weight"].T
    return made


def moved_by(
    made: dict[str, torch.Tensor], name: str, index: tuple[int, ...], source: str
) -> set[int]:
    """The elements of `source` on which one element depends, by its gradient.

    A weight of exactly 0 has a gradient and no part in the sum: it does not count.
    """
    (gradient,) = torch.autograd.grad(
        made[name][index], made[source], retain_graph=True, allow_unused=True
    )
    if gradient is None:
        return set()
    part = gradient != 0
    if source.endswith("weights"):
        part &= made[source] != 0
    return set(part.flatten().nonzero().flatten().tolist())


def test_what_an_element_came_from_is_what_its_gradient_reaches(
    browser: Any, sized: tuple
) -> None:
    file, data = sized
    made = plain_attention(data)
    opened = Opened(browser, file)
    last = made["x_batch"].shape[1] - 1
    samples = [
        ("mha_context_vectors", (0, 2, 1)),
        ("head_contexts", (0, 0, last, 1)),
        ("scaled", (0, 0, last, 1)),
    ]
    samples += [
        ("head_attention_weights", (0, made["scaled"].shape[1] - 1, 2, 1)),
        ("joined_contexts", (0, 1, 0)),
    ]
    for name, index in samples:
        opened.tab.locator(opened.cell(name, *index)).focus()
        for source in made:
            if made[name].grad_fn is None or source == name:
                continue
            expected = moved_by(made, name, index, source)
            found = opened.lit(source, "near-from far-from")
            # Gradient 1: it is that number.
            found |= opened.lit(source, "same") & expected
            assert found == expected, (name, index, source)
    opened.tab.close()


def test_where_an_element_goes_is_where_its_gradient_comes_from(
    browser: Any, sized: tuple
) -> None:
    file, data = sized
    made = plain_attention(data)
    opened = Opened(browser, file)
    for name, index in [
        ("x_batch", (0, 1, 2)),
        ("packed_values", (0, 1, 2)),
        ("head_keys", (0, 0, 2, 1)),
    ]:
        opened.tab.locator(opened.cell(name, *index)).focus()
        place = 0
        for i, size in zip(index, made[name].shape, strict=True):
            place = place * size + i
        for later in (
            "head_raw_scores",
            "masked",
            "head_attention_weights",
            "dropped_weights",
            "head_contexts",
            "mha_context_vectors",
        ):
            expected = set()
            for at in torch.cartesian_prod(
                *(torch.arange(n) for n in made[later].shape)
            ).tolist():
                root = name.replace("head_keys", "packed_keys")
                spot = place
                # The stack in plain_attention is a copy: start before it.
                if root != name:
                    _, h, t, d = index
                    spot = (
                        t * made[root].shape[-1] + h * made["head_keys"].shape[-1] + d
                    )
                if made[later][tuple(at)].isfinite() and spot in moved_by(
                    made, later, tuple(at), root
                ):
                    element = 0
                    for i, size in zip(at, made[later].shape, strict=True):
                        element = element * size + i
                    expected.add(element)
            assert opened.lit(later, "near-to far-to") == expected, (name, index, later)
    opened.tab.close()


def test_the_same_number_is_the_same_place_in_memory(
    browser: Any, sized: tuple
) -> None:
    file, data = sized
    heads_shape = next(n["sh"] for n in data["nodes"] if n["n"] == "head_queries")
    _, H, T, D = heads_shape
    memory = torch.arange(T * H * D)
    packed = memory.view(1, T, H * D)
    by_token = memory.view(1, T, H, D)
    by_head = by_token.transpose(1, 2)
    opened = Opened(browser, file)
    for index in [(0, 0, 0, 0), (0, H - 1, 2, 1), (0, 0, T - 1, D - 1)]:
        place = int(by_head[index])
        opened.tab.locator(opened.cell("head_queries", *index)).focus()
        for name, tensor in (
            ("packed_queries", packed),
            ("queries_by_token", by_token),
            ("head_queries", by_head),
        ):
            expected = set((tensor.flatten() == place).nonzero().flatten().tolist())
            assert opened.lit(name, "same") == expected
        assert opened.lit("packed_keys", "same") == set()
    opened.tab.close()


def test_the_merge_brings_each_number_home(opened: Opened) -> None:
    for h, t, d in [(0, 0, 0), (1, 2, 1), (0, 3, 2)]:
        opened.tab.locator(opened.cell("head_contexts", 0, h, t, d)).focus()
        assert opened.lit("joined_contexts", "same") == {t * 6 + h * 3 + d}


def test_a_looked_up_row_leads_to_its_row_of_the_table(opened: Opened) -> None:
    opened.tab.locator(opened.cell("token_embeddings", 0, 2, 3)).focus()
    opened.tab.wait_for_function("() => settled")
    headers = opened.tab.evaluate(
        """() => nodes.find(node => node.n === "token_embedding_layer.weight").views[0].cells
            .filter(cell => cell.td.classList.contains("same")).map(cell => cell.td.parentNode.querySelector("th").textContent)"""
    )
    assert headers == ["id 3331"]  # bank


def test_future_tokens_are_never_lit(opened: Opened) -> None:
    """bank's context comes from The, river and bank; nothing leads to was."""
    opened.tab.locator(opened.cell("mha_context_vectors", 0, 2, 4)).focus()
    assert {e // 4 for e in opened.lit("x_batch", "near-from far-from")} <= {0, 1, 2}
    assert opened.lit("x_batch", "near-from far-from")


def test_one_step_away(opened: Opened) -> None:
    opened.tab.locator(opened.cell("head_raw_scores", 0, 1, 2, 0)).focus()
    query, key = (
        {12 + 6, 12 + 7, 12 + 8},
        {12 + 0, 12 + 1, 12 + 2},
    )  # head 1: rows 2 and 0
    assert opened.lit("head_queries", "near-from") == query
    assert opened.lit("head_keys", "near-from") == key
    assert opened.lit("x_batch", "far-from") == {0, 1, 2, 3, 8, 9, 10, 11}
    opened.tab.locator("#reach").click()
    opened.tab.locator(opened.cell("head_raw_scores", 0, 1, 2, 0)).focus()
    assert opened.lit("head_queries", "near-from") == query
    assert opened.lit("x_batch", "far-from") == set()


def test_what_is_seen_is_lit_first_and_nothing_stays_lit(opened: Opened) -> None:
    lit = "document.querySelectorAll('td:is(.same, .near-to, .far-to, .near-from, .far-from)').length"
    at = opened.tab.evaluate("nodes.findIndex(node => node.n === 'x_batch')")
    opened.tab.locator(f"#t{at}").scroll_into_view_if_needed()
    opened.tab.wait_for_function(f"() => nodes[{at}].views[0].near")
    soon = opened.tab.evaluate(
        f"hovered = nodes[{at}].views[0].cells[0], relight(), {lit}"
    )
    opened.tab.wait_for_function("() => settled")
    assert 1 <= soon < opened.tab.evaluate(lit)
    opened.tab.evaluate("relight(), hovered = null, relight()")
    opened.tab.wait_for_function("() => settled")
    assert opened.tab.evaluate(lit) == 0
    opened.tab.evaluate(f"hovered = nodes[{at}].views[0].cells[5], relight()")
    opened.tab.evaluate("hovered = null, relight()")  # before the rest was lit
    opened.tab.wait_for_function("() => settled")
    assert opened.tab.evaluate(lit) == 0


def test_pointing_is_enough_and_a_click_keeps(opened: Opened) -> None:
    opened.tab.locator(opened.cell("head_queries", 0, 1, 2, 0)).hover()
    opened.tab.wait_for_function(
        "() => document.querySelectorAll('td.same').length > 1"
    )
    assert opened.lit("packed_queries", "same") == {2 * 6 + 3}
    opened.tab.locator(opened.cell("head_queries", 0, 0, 1, 1)).click()
    opened.tab.locator("#h15").hover()
    opened.tab.wait_for_timeout(100)
    assert opened.lit("packed_queries", "same") == {1 * 6 + 1}
    assert "head_queries[0, 0, 1, 1]" in opened.tab.locator("#now").inner_text()


def test_arrow_keys_and_the_live_region(opened: Opened) -> None:
    opened.tab.locator(opened.cell("head_queries", 0, 0, 0, 0)).focus()
    spoken = opened.tab.locator("#live")
    for key, where in [("ArrowRight", "0, 0, 0, 1"), ("ArrowDown", "0, 0, 1, 1"), ("End", "0, 0, 1, 2"),
                       ("ArrowRight", "0, 1, 1, 0"), ("ArrowUp", "0, 1, 0, 0"), ("Control+End", "0, 1, 3, 2"),
                       ("Control+Home", "0, 0, 0, 0"), ("ArrowLeft", "0, 0, 0, 0")]:  # fmt: skip
        opened.tab.keyboard.press(key)
        assert f"head_queries[{where}]" in spoken.text_content()
    assert (
        "The same number in packed_queries, queries_by_token" in spoken.text_content()
    )
    opened.tab.locator(opened.cell("head_attention_weights", 0, 0, 0, 3)).focus()
    assert "It carries nothing on" in spoken.text_content()


def test_keyboard_alone_reaches_every_step_and_leaves_it(opened: Opened) -> None:
    visited, stops, last = [], 0, None
    for _ in range(1500):
        opened.tab.keyboard.press("Tab")
        found = opened.tab.evaluate(
            """() => {
                const at = document.activeElement, grid = at.closest("table.grid"), box = at.getBoundingClientRect();
                const style = getComputedStyle(at);
                return [at.closest("section.step")?.id, grid ? [...document.querySelectorAll("table.grid")].indexOf(grid) : -1,
                    at.tagName, style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2];
            }"""
        )
        section, grid, tag, seen = found
        if tag == "BODY":
            break
        assert seen, f"focus is not visible on {tag} in {section}"
        if section and (not visited or visited[-1] != section):
            visited.append(section)
        if grid >= 0:
            assert grid != last, "one Tab leaves a grid"
            stops += 1
        last = grid
    assert stops == opened.tab.locator("table.grid").count()
    withgrid = opened.tab.evaluate(
        "[...document.querySelectorAll('section.step')].filter(s => s.querySelector('a, button, table.grid, [tabindex=\"0\"]')).map(s => s.id)"
    )
    assert visited == withgrid
    assert "step15" in visited


def test_every_row_of_a_wrong_split_says_whose_it_is(opened: Opened) -> None:
    said = opened.tab.evaluate(
        """() => nodes.filter(node => node.n === "wrong_queries").map(node =>
            [...document.getElementById("t" + node.id).querySelectorAll(".whose")].map(cell => cell.textContent))"""
    )
    rows = [
        f"{token}, head {h}"
        for token in ("The", "river", "bank", "was")
        for h in (1, 2)
    ]
    assert said == [rows, rows]  # in steps 15 and 20
    assert "undefined" not in opened.tab.locator("body").inner_text()


def test_every_step_is_a_section_with_a_way_to_it(
    opened: Opened, walk_document: dict[str, Any]
) -> None:
    for step in walk_document["steps"]:
        opened.tab.locator(f"nav a[href='#step{step['number']}']").focus()
        opened.tab.keyboard.press("Enter")
        heading = opened.tab.locator(f"#h{step['number']}")
        assert heading.is_visible()
        assert step["title"] in heading.inner_text()
        assert 0 <= heading.bounding_box()["y"] < 300
        for claim in step["checks"]:
            assert (
                opened.tab.locator(
                    f"#step{step['number']} .checks", has_text=claim["claim"]
                ).count()
                == 1
            )


def test_shapes_and_numbers_are_those_of_the_document(
    opened: Opened, walk_document: dict[str, Any]
) -> None:
    for step in walk_document["steps"]:
        drawn = opened.tab.evaluate(
            """number => nodes.filter(node => node.step === number && node.n && !node.wrong)
                .map(node => [node.n, document.getElementById("t" + node.id).querySelector(".shape").textContent,
                    node.views[0].cells[0].td.textContent])""",
            step["number"],
        )
        assert [(name, shape) for name, shape, _ in drawn] == [
            (tensor["name"], str(tuple(tensor["shape"])))
            for tensor in step["tensors"]
            if not tensor["link"]
        ]


def test_the_wrong_turn_scrambles_and_goes_on(
    opened: Opened, walk_document: dict[str, Any]
) -> None:
    def values(name: str) -> list[str]:
        return opened.tab.evaluate(
            "name => nodes.find(node => node.n === name && !node.wrong).views[0].cells.map(cell => cell.td.textContent)",
            name,
        )

    tensors = {
        t["name"]: t
        for s in walk_document["steps"]
        if 14 < s["number"] < 20
        for t in s["tensors"]
    }
    right = {
        name: values(name)
        for name in ("head_queries", "head_raw_scores", "mha_context_vectors")
    }
    wrong = {
        r: torch.tensor(tensors[f"packed_{r}"]["values"]).reshape(1, 2, 4, 3)
        for r in ("queries", "keys")
    }
    opened.tab.locator("#turn").focus()
    opened.tab.keyboard.press("Enter")
    assert opened.tab.locator("#turn").get_attribute("aria-pressed") == "true"
    assert values("head_queries") == [
        f"{v:.4f}" for v in wrong["queries"].flatten().tolist()
    ]
    scores = wrong["queries"] @ wrong["keys"].mT
    shown = torch.tensor([float(v) for v in values("head_raw_scores")])
    assert (shown - scores.flatten()).abs().max() < 1e-3
    assert values("mha_context_vectors") != right["mha_context_vectors"]
    assert opened.tab.locator("#step15 .whose.moved").first.is_visible()
    # River's place holds The.
    opened.tab.locator(opened.cell("head_queries", 0, 0, 1, 0)).focus()
    assert opened.lit("packed_queries", "same") == {3}
    opened.tab.locator("#turn").click()
    assert {name: values(name) for name in right} == right
    opened.tab.locator(opened.cell("head_queries", 0, 0, 1, 0)).focus()
    assert opened.lit("packed_queries", "same") == {6}


def test_the_wrong_turn_says_what_it_shows(opened: Opened) -> None:
    """Statement, axes and names of rows are those of the numbers that are shown."""

    def told() -> dict[str, list[str]]:
        return opened.tab.evaluate(
            """() => Object.fromEntries(nodes.filter(node => node.step >= 15 && node.step <= 19 && !node.wrong).map(node => {
                const box = byId("t" + node.id), group = box.closest(".statement");
                return [node.n || node.x, [...group.querySelectorAll(":scope > code"), box.querySelector(".axes"), box.querySelector(".layoutfact"),
                    ...box.querySelectorAll("tbody th")].filter(Boolean).map(part => part.textContent).filter(Boolean)];
            }))"""
        )

    banners = opened.tab.locator(".turned")
    right = told()
    assert banners.evaluate_all("all => all.every(one => !one.checkVisibility())")
    opened.tab.locator("#turn").click()
    wrong = told()
    rows = ["row 0", "row 1", "row 2", "row 3"]
    for role in ("queries", "keys", "values"):
        assert wrong[f"head_{role}"] == [
            f"head_{role} = packed_{role}.view(B, H, T, D)",
            f"here: packed_{role}.view(1, 2, 4, 3)",
            "B, H, T?, D",
            "strides (24, 12, 3, 1), contiguous",
            *rows,
            *rows,
        ]
        assert wrong[f"packed_{role}"] == right[f"packed_{role}"]
        assert wrong[f"{role}_by_token"] == right[f"{role}_by_token"]
    assert "B, H, D, T?" in wrong["head_keys.transpose(-2, -1)"]
    assert "strides (24, 12, 1, 3), not contiguous" in wrong["head_keys.transpose(-2, -1)"]  # fmt: skip
    assert wrong["head_raw_scores"][1:] == ["B, H, T?, T?", *rows, *rows]
    assert wrong["mha_context_vectors"][1:] == ["B, T?, d_out", *rows]
    assert wrong["causal_mask"] == right["causal_mask"]
    for step in range(15, 20):
        part = opened.tab.locator(f"#step{step}")
        part.scroll_into_view_if_needed()
        part.get_by_text("Checks of the right turn").wait_for()
        banner = part.locator(".banner").last
        assert banner.is_visible()
        said = "checks below are made with the right turn."
        assert (banner.text_content() or "").endswith(said)
    opened.tab.locator("#turn").click()
    assert told() == right
    assert banners.evaluate_all("all => all.every(one => !one.checkVisibility())")


def test_without_a_difference_there_is_no_wrong_turn(sized: tuple) -> None:
    _, data = sized
    assert bool(data["turn"]) == (heads_of(data) > 1)


@pytest.mark.parametrize("width", [320, 1280])
def test_the_path_joins_what_is_made_from_what(
    browser: Any, made: Path, width: int
) -> None:
    opened = Opened(browser, made, viewport={"width": width, "height": 800})
    cards = opened.tab.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll(".path li")].map((li, at) => {
            const box = li.getBoundingClientRect(), name = li.querySelector("b");
            return [name ? name.textContent : "pass", {left: box.left, right: box.right, top: box.top, bottom: box.bottom, at,
                text: (li.querySelector(".op") || li).textContent,
                arrows: [...li.querySelectorAll(".arrow")].map(arrow => { const one = arrow.getBoundingClientRect(); return (one.left + one.right) / 2; })}];
        }))"""
    )
    from_ = {
        "packed_queries": ["x_batch"],
        "packed_values": ["x_batch"],
        "queries_by_token": ["packed_queries"],
        "head_keys": ["keys_by_token"],
        "head_raw_scores": ["head_queries", "head_keys"],
        "scaled": ["head_raw_scores"],
        "head_contexts": ["dropped_weights", "head_values"],
        "joined_contexts": ["head_contexts"],
    }
    for name, sources in from_.items():
        card = cards[name]
        assert len(card["arrows"]) == len(sources), name
        for source in sources:
            above = cards[source]
            assert above["bottom"] < card["top"]
            inside = [above["left"] < x < above["right"] for x in card["arrows"]]
            assert any(inside), (name, source)
            others = [s for s in sources if s != source]
            assert sum(inside) == 1 or not others
    assert cards["head_raw_scores"]["right"] < cards["head_values"]["left"]
    beside = cards["pass"]
    assert beside["text"] == "head_values goes on to head_contexts"
    assert beside["left"] == cards["head_values"]["left"]
    assert beside["top"] <= cards["head_raw_scores"]["top"]
    assert beside["bottom"] >= cards["dropped_weights"]["bottom"]
    assert cards["head_raw_scores"]["text"] == "head_queries @ head_keys, transposed"
    assert cards["head_contexts"]["text"] == "dropped_weights @ head_values"
    read = [name for name, _ in sorted(cards.items(), key=lambda c: c[1]["at"])]
    assert read.index("head_queries") < read.index("packed_keys")  # lane by lane
    opened.tab.close()


def test_the_merge_copies_where_the_record_says_so(browser: Any, sized: tuple) -> None:
    file, data = sized
    opened = Opened(browser, file)
    card = opened.tab.locator(".path li", has_text="joined_contexts").last
    copies = "a copy" if heads_of(data) > 1 else "nothing to copy"
    assert f"contiguous ({copies}), view: the same" in (card.text_content() or "")
    opened.tab.close()


def test_an_index_is_called_an_index(opened: Opened) -> None:
    opened.tab.locator(opened.cell("packed_queries", 0, 1, 4)).focus()
    assert "river, head 2, index 1" in opened.tab.locator("#now").inner_text()
    assert " drawn" not in opened.tab.locator("#main .tensor").evaluate_all(
        "all => all.map(one => one.textContent).join()"
    )


def test_the_words_are_explained_in_the_terminals_sentences(opened: Opened) -> None:
    words = opened.tab.locator("#words")
    words.locator("summary").click()
    said = " ".join(words.locator("p, dt, dd").all_inner_texts())
    assert said.split() == LEGEND.split()


def test_predict_mode_hides_until_guessed(opened: Opened, made: Path) -> None:
    box = opened.tab.locator(
        ".tensor", has=opened.tab.locator("h3", has_text="queries_by_token")
    ).first
    assert box.locator(".shape").is_visible()
    opened.tab.locator("#predict").click()
    questions = sum("q" in node for node in data_of(made)["nodes"])
    score = opened.tab.locator("#score")
    assert score.inner_text() == f"{questions} shapes to guess"
    hint = box.locator("input").get_attribute("placeholder")
    assert hint == "1,4,2,3 or B T H D"
    for hidden in (
        box.locator(".shape"),
        box.locator("table").first,
        opened.tab.locator(".path"),
        opened.tab.locator("#step15 .here").first,
    ):
        assert not hidden.is_visible()
    box.scroll_into_view_if_needed()
    box.locator(".h").wait_for()
    said = opened.tab.locator("#step15").inner_text()
    assert "queries_by_token" in said
    assert "(1, 4, 2, 3)" not in said
    guess = box.locator("input")
    guess.fill("1 4 3 2")
    guess.press("Enter")
    assert (
        "Axis 2 (counted from 0) differs: you have 3. It counts heads."
        in box.inner_text()
    )
    assert not box.locator(".shape").is_visible()
    guess.fill("B T H")
    guess.press("Enter")
    assert "The number of axes differs: you have 3." in box.inner_text()
    guess.fill("B T H D")
    guess.press("Enter")
    assert box.locator(".shape").is_visible()
    assert box.locator("table").first.is_visible()
    assert opened.tab.locator("#score").inner_text().startswith("0 of 1 right at once")
    opened.tab.locator("#predict").click()
    assert opened.tab.locator(".path").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1280])
def test_axe_finds_nothing(browser: Any, made: Path, width: int, scheme: str) -> None:
    opened = Opened(
        browser, made, viewport={"width": width, "height": 800}, color_scheme=scheme
    )
    assert opened.axe() == []
    opened.tab.locator("#turn").click()
    opened.tab.locator(opened.cell("head_contexts", 0, 1, 2, 0)).focus()
    assert opened.axe() == []
    opened.tab.locator("#predict").click()
    assert opened.axe() == []
    opened.tab.close()


@pytest.mark.parametrize("width", [305, 320, 640, 768, 1280, 1920])
def test_the_page_never_scrolls_sideways(browser: Any, made: Path, width: int) -> None:
    """640 pixels are what a window of 1280 has at 200 % zoom, 305 what a scrollbar
    leaves of 320."""
    opened = Opened(browser, made, viewport={"width": width, "height": 800})
    assert opened.tab.evaluate("document.documentElement.scrollWidth") <= width
    opened.tab.close()


def test_what_has_the_focus_is_seen_at_200_percent_zoom(
    browser: Any, made: Path
) -> None:
    """A window of 1280 x 800 pixels at 200 % zoom: the bars must not cover the focus."""
    opened = Opened(
        browser, made, viewport={"width": 640, "height": 400}, device_scale_factor=2
    )
    for name in ("packed_queries", "joined_contexts", "mha_context_vectors"):
        opened.tab.locator(opened.cell(name, 0, 0, 0)).focus()
        for key in ("ArrowDown", "ArrowRight", "ArrowDown"):
            opened.tab.keyboard.press(key)
        opened.tab.wait_for_function("() => settled")
        assert opened.tab.evaluate(
            """() => {
                const cell = document.activeElement, box = cell.getBoundingClientRect();
                const at = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
                return cell.tagName === "TD" && (at === cell || cell.contains(at));
            }"""
        )
    opened.tab.close()


def test_a_narrow_screen_shows_that_there_is_more(browser: Any, made: Path) -> None:
    opened = Opened(browser, made, viewport={"width": 320, "height": 800})
    now = opened.tab.locator("#now")
    assert now.inner_text().endswith("arrow keys.")
    assert now.evaluate("now => now.scrollHeight <= now.clientHeight")
    table = opened.tab.locator("#step15 .scroll").first
    table.scroll_into_view_if_needed()
    fades = "box => box.matches('.more') && getComputedStyle(box).maskImage !== 'none'"
    box = table.element_handle()
    opened.tab.wait_for_function(fades, arg=box)
    table.evaluate("box => { box.scrollLeft = box.scrollWidth; }")
    opened.tab.wait_for_function("box => !box.matches('.more')", arg=box)
    opened.tab.close()


def test_print_and_reduced_motion(browser: Any, made: Path) -> None:
    opened = Opened(browser, made, reduced_motion="reduce")
    assert (
        opened.tab.evaluate("getComputedStyle(document.documentElement).scrollBehavior")
        == "auto"
    )
    opened.tab.emulate_media(media="print")
    assert not opened.tab.locator("nav").is_visible()
    assert not opened.tab.locator("#trail").is_visible()
    assert opened.tab.locator("#step15 table").first.is_visible()
    opened.tab.close()


def test_the_text_cannot_break_the_page(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    ran = main("--page", str(file), "--text", HOSTILE)
    assert (ran.code, ran.err) == (0, "")
    opened = Opened(browser, file)
    assert opened.tab.locator("#hurt").count() == 0
    assert HOSTILE in opened.tab.locator(".sentence bdi").text_content()
    assert opened.tab.locator("section.step").count() > 20
    assert (opened.complaints, opened.requests) == ([], [file.as_uri()])
    opened.tab.close()


# Before which column, row and sheet of a tensor something is said to be left out.
LEFT_OUT = """id => {
    const sheets = nodes[id].views[0].box, table = sheets.querySelector("table");
    const before = (parts, shown) => parts.flatMap((part, at) => part.textContent === "…" ? [parts.slice(0, at).filter(shown).length] : []);
    return {columns: before([...table.querySelector("tbody tr").children], part => part.cell),
        rows: before([...table.querySelectorAll("tbody tr")], part => part.querySelector("th")),
        sheets: before([...sheets.children], part => part.matches(".sheet"))};
}"""


def test_a_long_text_is_drawn_in_part_and_followed_whole(
    browser: Any, tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    ran = main(
        "--page",
        str(file),
        "--text",
        "The river bank was muddy. " * 11,
        "--heads",
        "12",
        "--head-dim",
        "2",
    )
    assert (ran.code, ran.err) == (0, "")
    opened = Opened(browser, file)
    assert "numbers are shown" in opened.tab.locator("#step16").text_content()
    tokens = len(data_of(file)["tokens"])
    assert tokens > 60
    opened.tab.locator(opened.cell("mha_context_vectors", 0, tokens - 1, 0)).focus()
    whole = opened.tab.evaluate(
        "count(seen.farFrom.get(nodes.find(node => node.n === 'x_batch').id))"
    )
    assert whole == tokens * 4  # the last token sees all, also what is not drawn
    names = [node["n"] for node in data_of(file)["nodes"]]
    gaps = opened.tab.evaluate(LEFT_OUT, names.index("head_raw_scores"))
    assert gaps == {"columns": [6], "rows": [6], "sheets": [2]}
    at = names.index("packed_queries")  # D is 2: of 12 heads the first two and the last
    assert opened.tab.evaluate(LEFT_OUT, at)["columns"] == [4]
    opened.tab.close()


def test_what_the_debugger_found_as_a_page(browser: Any, tmp_path: Path) -> None:
    faulty = tmp_path / "my_attention.py"
    faulty.write_text(samples()["folded_merge_no_transpose"].source)
    file = tmp_path / "report.html"
    ran = main("--check", str(faulty), "--page", str(file))
    assert (ran.code, ran.err) == (1, "")
    opened = Opened(browser, file)
    marked = opened.tab.locator(".tensor.first-wrong")
    assert marked.count() == 1
    assert "the first wrong line" in marked.inner_text()
    (row,) = (n for n in data_of(file)["nodes"] if n.get("bad") == 2)
    assert f"line {ran.out.split(':')[1]}" in opened.tab.locator("main").inner_text()
    assert row["sh"] == [2, 7, 40]
    data = data_of(file)
    at = next(
        i for i, n in enumerate(data["nodes"]) if n.get("w", [[]])[-1][-1:] == [39]
    )
    assert data["nodes"][at]["w"][-1] == [0, 1, 2, 3, 38, 39]
    assert opened.tab.evaluate(LEFT_OUT, at)["columns"] == [4]
    assert (opened.complaints, opened.requests) == ([], [file.as_uri()])
    opened.tab.close()
