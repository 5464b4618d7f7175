"""The page in a real browser: what is lit, computed, moved, kept, sent and printed."""

# ruff: noqa: E501, RUF001 -- scripts are easier to read unbroken; the page says ×

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cases import samples
from opened import Opened, element, place_of
from picture import PICTURE, digest_of, picture
from program import main

from steps.pytorch import torch
from steps.walk.text import ORIGINS

HOSTILE = "one </script><b id=hurt>two</b> <!-- three & \u05e9\u05dc\u05d5\u05dd four"
BANK = (0, 1, 2)  # sentence, head 2, bank


@pytest.fixture
def opened(browser: Any, made: Path) -> Iterator[Opened]:
    page_open = Opened(browser, made)
    yield page_open
    page_open.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("report") / "report.html"
    faulty = file.with_name("my_attention.py")
    faulty.write_text(samples()["folded_merge_no_transpose"].source, encoding="utf-8")
    ran = main("--check", str(faulty), "--page", str(file))
    assert (ran.code, ran.err) == (1, "")
    return file


# The first screen


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (1440, 900), (1920, 1080)])
def test_the_first_screen_is_the_whole_picture(
    browser: Any, made: Path, width: int, height: int
) -> None:
    """Bank's row is lit from packed to output, and the computation stands over it."""
    opened = Opened(browser, made, viewport={"width": width, "height": height})
    for table in opened.tab.locator("#picture table").all():
        box = table.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert box["y"] + box["height"] <= height
    assert "head_raw_scores[0, 1, 2, 1] = 0.6437" in opened.text("#now")
    assert opened.text("#sum").startswith("= -0.1932 × -0.6107 + -0.2441 × -1.7486 +")
    row = {12 + 3, 12 + 4, 12 + 5}  # bank's numbers for head 2
    assert opened.lit("packed_queries", "near-from") == row
    assert opened.lit("head_queries", "near-from") == {18, 19, 20}
    assert opened.lit("head_raw_scores", "same") == {16 + 2 * 4 + 1}
    assert opened.lit("head_contexts", "near-to far-to") == {18, 19, 20}
    assert opened.lit("mha_context_vectors", "near-to far-to") == set(range(12, 18))
    opened.close()


@pytest.mark.parametrize("width", [305, 390, 640, 768, 1024, 1280, 1440, 1920])
def test_the_page_never_scrolls_sideways(browser: Any, made: Path, width: int) -> None:
    """640 pixels are what a window of 1280 has at 200 % zoom."""
    opened = Opened(browser, made, viewport={"width": width, "height": 800})
    opened.open_step(15)
    wide = "document.documentElement.scrollWidth"
    assert opened.tab.evaluate(wide) <= width
    opened.tab.evaluate(
        "document.querySelector('[data-motion=\"wrong turn\"]').click()"
    )
    assert opened.tab.evaluate(wide) <= width
    opened.close()


def test_nothing_is_drawn_before_it_is_opened(opened: Opened) -> None:
    picture = opened.tab.locator("#picture table").count()
    assert opened.tab.locator("table").count() == picture
    opened.open_step(15)
    assert opened.tab.locator("#step15 table").count() > 10
    assert opened.tab.locator("#step24 table").count() == 0
    section = opened.open_step(24)
    assert "(1, 12, 64, 64)" in section.inner_text()


# What is lit, and how it is computed


def test_pointing_lights_and_the_gap_between_cells_empties_nothing(
    opened: Opened,
) -> None:
    opened.open_step(15)
    opened.cell("head_queries", 0, 1, 2, 0, within="#step15").hover()
    opened.frame()
    assert opened.lit("packed_queries", "same") == {2 * 6 + 3}
    one = opened.cell("head_queries", 0, 1, 2, 0, within="#step15").bounding_box()
    two = opened.cell("head_queries", 0, 1, 2, 1, within="#step15").bounding_box()
    opened.tab.mouse.move((one["x"] + one["width"] + two["x"]) / 2, one["y"] + 5)
    opened.frame()
    assert opened.lit("packed_queries", "same") == {2 * 6 + 3}
    opened.tab.mouse.move(5, 5)
    opened.frame()
    assert opened.lit("packed_queries", "same") == {2 * 6 + 3}


def test_a_click_keeps_until_escape_a_click_outside_or_the_cross(
    opened: Opened,
) -> None:
    chip = opened.tab.locator("#kept")
    for release in ("Escape", "outside", "cross", "again"):
        opened.cell("head_queries", 0, 0, 1, 1).click()
        assert chip.is_visible()
        opened.point("head_keys", 0, 0, 0, 0)
        assert opened.lit("packed_queries", "same") == {1 * 6 + 1}  # still
        if release == "Escape":
            opened.tab.keyboard.press("Escape")
        elif release == "outside":
            opened.tab.mouse.click(8, 300)
        elif release == "cross":
            chip.click()
        else:
            opened.cell("head_queries", 0, 0, 1, 1).click()
        assert not chip.is_visible(), release
        opened.point("head_queries", 0, 1, 3, 0)
        assert opened.lit("packed_queries", "same") == {3 * 6 + 3}, release


def test_arrow_keys_and_what_a_screen_reader_hears(opened: Opened) -> None:
    spoken = opened.tab.locator("#live")
    opened.cell("head_queries", 0, 0, 0, 0).click()
    opened.tab.keyboard.press("Escape")
    for key, where in [("ArrowRight", "0, 0, 0, 1"), ("ArrowDown", "0, 0, 1, 1"), ("End", "0, 0, 1, 2"),
                       ("ArrowRight", "0, 1, 1, 0"), ("ArrowUp", "0, 1, 0, 0"), ("ArrowUp", "0, 0, 3, 0"),
                       ("Control+End", "0, 1, 3, 2"), ("ArrowRight", "0, 1, 3, 2"), ("Control+Home", "0, 0, 0, 0"),
                       ("ArrowLeft", "0, 0, 0, 0")]:  # fmt: skip
        opened.tab.keyboard.press(key)
        assert f"head_queries[{where}]" in spoken.text_content()
    said = spoken.text_content()
    assert "The, head 1" in said
    assert (
        "The same number in packed_queries[0, 0, 0], queries_by_token[0, 0, 0, 0]"
        in said
    )
    opened.tab.keyboard.press("Enter")
    assert opened.tab.locator("#kept").is_visible()
    opened.cell("head_attention_weights", 0, 0, 0, 3).click()
    assert "It carries nothing on" in spoken.text_content()


def test_keyboard_alone_reaches_every_part_and_leaves_it(opened: Opened) -> None:
    opened.open_step(15)
    opened.tab.locator(".skip").focus()
    stops: list[int] = []
    for _ in range(400):
        opened.tab.keyboard.press("Tab")
        grid, tag, seen = opened.tab.evaluate(
            """() => {
                const at = document.activeElement, grid = at.closest("table.grid"), style = getComputedStyle(at);
                return [grid ? [...document.querySelectorAll("table.grid")].indexOf(grid) : -1, at.tagName,
                    style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2];
            }"""
        )
        if tag == "BODY":
            break
        assert seen, f"focus is not visible on {tag}"
        if grid >= 0:
            assert grid not in stops, "one Tab leaves a grid"
            stops.append(grid)
    hidden = (
        "all => all.map((one, k) => one.checkVisibility() ? k : -1).filter(k => k >= 0)"
    )
    visible = opened.tab.locator("table.grid").evaluate_all(hidden)
    assert sorted(stops) == visible


def parsed(text: str) -> str:
    """A computation as a reader would type it into a calculator."""
    text = text.split(" from ")[0].split("\n")[0].removeprefix("= ").strip()
    text = re.sub(r"e\^(-?[\d.]+)", r"exp(\1)", text.replace("e^-inf", "0"))
    text = re.sub(r"√(\d+)", r"math.sqrt(\1)", text).replace("×", "*")
    return text.replace("exp(", "math.exp(")


def test_the_shown_digits_add_up_for_every_number(opened: Opened) -> None:
    """Every computed number of the picture, recomputed from the digits on the screen."""
    counted = 0
    for name in ("packed_values", "head_raw_scores", "head_attention_weights", "dropped_weights",
                 "head_contexts", "mha_context_vectors"):  # fmt: skip
        place = place_of(opened.data, name)
        shown = opened.tab.evaluate(
            """async place => {
                const found = [];
                for (const td of document.querySelectorAll(`#picture [data-t="${place}"] td[data-e]`)) {
                    td.click();
                    found.push([document.querySelector("#now strong").textContent, document.querySelector("#sum .made")?.textContent || ""]);
                }
                return found;
            }""",
            place,
        )
        for number, told in shown:
            if "dropped" in told:
                assert number == "0.0000"
                continue
            result = eval(parsed(told), {"math": math})
            assert f"{result + 0.0:.4f}".replace("-0.0000", "0.0000") == number, (
                name,
                told,
            )
            counted += 1
    assert counted > 100


def test_the_terms_of_a_computation_are_where_it_says(opened: Opened) -> None:
    terms = opened.tab.locator("#sum .term")
    assert terms.count() == 6
    assert terms.nth(1).get_attribute("title") == "head_keys[0, 1, 1, 0]"
    terms.nth(1).hover()
    pointed = opened.cell("head_keys", 0, 1, 1, 0)
    assert pointed.get_attribute("data-pointed") is not None
    terms.nth(1).click()
    assert "head_keys[0, 1, 1, 0] = -0.6107" in opened.text("#now")
    assert "rearranged, not computed" in opened.text("#sum")
    assert opened.tab.locator("#kept").is_visible()


def test_the_storage_is_read_as_the_strides_say(opened: Opened) -> None:
    opened.point("head_queries", 0, 1, 2, 0)
    said = opened.text(".stored")
    assert said.startswith("storage of packed_queries: 24 numbers in a row.")
    assert "strides (24, 3, 6, 1)" in said
    assert "0 × 24 + 1 × 3 + 2 × 6 + 0 × 1 = 15" in said
    assert opened.tab.locator(".slots .here small").all_inner_texts() == ["15"]
    assert opened.tab.locator(".slots .reads small").all_inner_texts() == ["16", "17"]


def test_touch_chooses_and_lets_go(browser: Any, made: Path) -> None:
    phone = {"width": 390, "height": 844}
    opened = Opened(browser, made, viewport=phone, has_touch=True, is_mobile=True)
    opened.cell("queries_by_token", 0, 2, 1, 0).tap()
    assert "queries_by_token[0, 2, 1, 0]" in opened.text("#now")
    assert opened.lit("packed_queries", "same") == {15}
    assert opened.tab.locator("#kept").is_visible()
    opened.tab.touchscreen.tap(380, 420)
    assert not opened.tab.locator("#kept").is_visible()
    opened.close()


def test_the_dock_keeps_both_ends_in_sight(browser: Any, made: Path) -> None:
    opened = Opened(browser, made, viewport={"width": 390, "height": 844})
    dock = opened.tab.locator("#dock")
    assert dock.is_visible()
    assert "head_raw_scores[0, 1, 2, 1] = 0.6437" in dock.inner_text()
    stops = dict(
        zip(
            dock.locator("li b").all_inner_texts(),
            dock.locator("li a > span").all_inner_texts(),
            strict=True,
        )
    )
    assert "[0, 1, 2, :]" in stops["head_queries"]
    assert "[0, 2, 3:6]" in stops["packed_queries"]
    assert "[0, 1:3, :]" in stops["x_batch"]
    opened.close()


# Motion


def press(opened: Opened, name: str) -> None:
    opened.tab.locator(f"#motion-{name}").click()


@pytest.mark.parametrize("motion", ["view", "transpose", "merge", "wrong turn"])
def test_numbers_move_step_by_step_and_back(
    browser: Any, made: Path, motion: str
) -> None:
    opened = Opened(browser, made, reduced_motion="reduce")
    goal = {"view": "queries_by_token", "merge": "joined_contexts"}.get(
        motion, "head_queries"
    )
    opened.tab.locator(f"[data-motion='{motion}']").click()
    press(opened, "playing")  # pause
    place = place_of(opened.data, goal)
    waiting = f"#picture [data-t='{place}'] td[data-waiting]"
    while opened.tab.locator("#motion-back").is_enabled():
        press(opened, "back")
    assert opened.tab.locator(waiting).count() == 24
    before, said = 24, []
    for k in range(8):
        press(opened, "forward")
        left = opened.tab.locator(waiting).count()
        assert left == before - 3
        before = left
        said.append(opened.text("#moving"))
        assert said[-1].startswith(f"{k + 1} of 8. {goal}")
    assert not opened.tab.locator("#motion-forward").is_enabled()
    assert "no number was computed" in said[-1]
    assert opened.tab.locator(".flyer").count() == 0  # motion is reduced
    if motion == "merge":
        assert (
            "copied, from places 12 to 14 of the one storage to places 3 to 5"
            in said[1]
        )
    elif motion == "transpose":
        assert (
            "head_queries[0, 1, 2, :] holds queries_by_token[0, 2, 1, :]: bank, head 2"
            in said[6]
        )
        assert "places 15 to 17" in said[6]
    elif motion == "wrong turn":
        assert (
            "head_queries[0, 0, 2, :] holds packed_queries[0, 1, 0:3]: river, head 1"
            in said[2]
        )
        assert "The right turn has bank, head 1 there" in said[2]
    press(opened, "back")
    assert opened.tab.locator(waiting).count() == 3
    press(opened, "done")
    assert opened.tab.locator("[data-waiting]").count() == 0
    opened.close()


def test_a_number_travels_from_where_it_stood(opened: Opened) -> None:
    opened.tab.locator("[data-motion='transpose']").click()
    press(opened, "playing")
    press(opened, "forward")
    flyer = opened.tab.locator(".flyer").first
    flyer.wait_for()
    assert (
        flyer.inner_text() == opened.cell("queries_by_token", 0, 0, 0, 0).inner_text()
    )
    opened.tab.wait_for_function("() => !document.querySelector('.flyer')")
    opened.tab.locator("[data-motion='view']").click()
    opened.tab.wait_for_function(
        "() => document.getElementById('moving').textContent.startsWith('2 of 8')"
    )  # it plays by itself


def test_the_wrong_turn_scrambles_and_goes_on(opened: Opened) -> None:
    names = ("head_queries", "head_raw_scores", "mha_context_vectors")
    right = {name: opened.values(name) for name in names}
    opened.tab.locator("[data-motion='wrong turn']").click()
    press(opened, "done")
    assert "54 of 72 numbers" in opened.text(".banner")
    packed = opened.values("packed_queries")
    wrong = opened.values("head_queries")
    assert wrong == packed  # in the order of the storage
    numbers = {
        many: torch.tensor([float(v) for v in opened.values(f"packed_{many}")])
        for many in ("queries", "keys")
    }
    scores = (
        numbers["queries"].view(1, 2, 4, 3) @ numbers["keys"].view(1, 2, 4, 3).mT
    ).flatten()
    shown = torch.tensor([float(v) for v in opened.values("head_raw_scores")])
    assert (shown - scores).abs().max() < 0.05  # of numbers with two decimals
    assert opened.values("mha_context_vectors") != right["mha_context_vectors"]
    place = place_of(opened.data, "head_queries")
    rows = opened.tab.locator(f"#picture [data-t='{place}'] tbody th").all_inner_texts()
    assert rows[:4] == ["The, h1", "The, h2", "river, h1", "river, h2"]
    opened.point("head_queries", 0, 0, 1, 0)
    assert "belongs to The, head 2, and stands in head 1" in opened.text("#now")
    assert opened.lit("packed_queries", "same") == {3}
    section = opened.open_step(15)
    box = section.locator(
        ".statement", has=opened.tab.locator("[id='step15-head_queries']")
    )
    said = box.locator("> code").first.inner_text()
    assert said == "head_queries = packed_queries.view(B, H, T, D)"
    opened.tab.locator(".banner .turn").click()
    assert {name: opened.values(name) for name in names} == right


def test_without_a_difference_there_is_no_wrong_turn(
    browser: Any, tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    main("--page", str(file), "--heads", "1")
    opened = Opened(browser, file)
    assert opened.data["turn"] is None
    assert opened.tab.locator("[data-motion='wrong turn']").count() == 0
    assert opened.tab.locator("[data-motion='merge']").count() == 1
    opened.close()


# Links, and what survives


def test_an_address_brings_back_one_exact_sight(browser: Any, made: Path) -> None:
    address = "#step16-head_raw_scores&at=0.0.3.1&open=17&turn=wrong"
    opened = Opened(browser, made, address)
    assert "head_raw_scores[0, 0, 3, 1]" in opened.text("#now")
    assert opened.tab.locator("#kept").is_visible()
    assert opened.tab.locator(".banner .turn").is_visible()
    assert opened.tab.locator("#step17 table").count() > 0
    opened.close()


def test_what_is_kept_stands_in_the_address_and_back_goes_back(opened: Opened) -> None:
    opened.cell("head_keys", 0, 1, 2, 0).click()
    assert opened.tab.url.endswith("#step15-head_keys&at=0.1.2.0")
    opened.cell("head_keys", 0, 1, 2, 1).click()
    opened.tab.go_back()
    opened.tab.wait_for_function(
        "() => document.getElementById('now').textContent.includes('[0, 1, 2, 0]')"
    )
    opened.tab.go_back()
    opened.tab.wait_for_function("() => document.getElementById('kept').hidden")
    opened.tab.go_forward()
    opened.tab.wait_for_function("() => !document.getElementById('kept').hidden")


def test_a_name_leads_to_its_tensor(opened: Opened) -> None:
    opened.tab.locator("#picture a", has_text="head_queries").click()
    box = opened.tab.locator("[id='step15-head_queries']")
    box.wait_for()
    assert 0 <= box.bounding_box()["y"] < 600
    assert opened.tab.url.endswith("#step15-head_queries")


@pytest.mark.parametrize(
    "address",
    ["#step99", "#step15-nothing", "#x&at=1.2", "#step15-head_keys&at=9.9.9.9", "#%"],
)
def test_an_address_that_leads_nowhere_does_no_harm(
    browser: Any, made: Path, address: str
) -> None:
    opened = Opened(browser, made, address)
    assert "0.6437" in opened.text("#now")
    opened.close()


# Predicting


def test_predicting_hides_until_guessed_and_survives_a_reload(opened: Opened) -> None:
    section = opened.open_step(15)
    box = section.locator("[id='step15-queries_by_token']")
    assert box.locator(".shape").is_visible()
    opened.tab.locator("#predict").click()
    for hidden in (
        box.locator(".shape"),
        box.locator("table").first,
        opened.tab.locator("#picture"),
    ):
        assert not hidden.is_visible()
    assert "(1, 4, 2, 3)" not in section.inner_text()
    guess = box.locator("input")
    example = guess.get_attribute("placeholder")
    shapes = {str(tuple(t["shape"])) for t in opened.data["tensors"]}
    numbers, letters = example.split(" or ")
    assert f"({numbers})" not in shapes
    assert letters.split() not in [t["axes"] for t in opened.data["tensors"]]
    guess.fill("1 4 3 2")
    guess.press("Enter")
    assert (
        "Axis 2 (counted from 0) differs: you have 3. It counts heads."
        in box.inner_text()
    )
    guess.fill("B T H")
    guess.press("Enter")
    assert "The number of axes differs: you have 3." in box.inner_text()
    guess.fill("B T H D")
    guess.press("Enter")
    assert "Right." in box.inner_text()  # it stays to be seen
    assert box.locator("table").first.is_visible()
    focused = opened.tab.evaluate("document.activeElement.closest('section.step')?.id")
    assert focused == "step15"
    assert opened.text("#score15").startswith("0 of 9 right at once, 8 to go")
    opened.tab.reload()
    assert opened.tab.locator("#predict").get_attribute("aria-pressed") == "true"
    opened.open_step(15)
    assert box.locator("table").first.is_visible()
    assert not section.locator("[id='step15-head_keys'] .shape").is_visible()
    opened.tab.locator("#again").click()
    assert not box.locator("table").first.is_visible()
    opened.tab.locator("#predict").click()
    assert opened.tab.locator("#picture").is_visible()


# The steps


def test_every_step_says_what_the_document_says(
    opened: Opened, walk_document: dict[str, Any]
) -> None:
    for step in walk_document["steps"]:
        section = opened.open_step(step["number"])
        assert step["title"] in section.locator("h2").inner_text()
        text = section.inner_text()
        for claim in step["checks"]:
            assert claim["claim"] in text
        shapes = (
            section.locator(".flow").first.locator(".tensor .shape").all_inner_texts()
        )
        expected = [str(tuple(t["shape"])) for t in step["tensors"]]
        assert [shape for shape in shapes if shape] == expected
    assert "undefined" not in opened.tab.locator("body").inner_text()


def test_a_looked_up_row_leads_to_its_row_of_the_table(opened: Opened) -> None:
    section = opened.open_step(4)
    section.locator(".numbers summary").first.click()
    opened.cell("token_embeddings", 0, 2, 3, within="#step4").click()
    rows = opened.tab.evaluate(
        "() => [...document.querySelectorAll('#step4 td.same')].map(td => td.parentNode.querySelector('th').textContent)"
    )
    assert "id 3331" in rows  # bank
    assert "bank" in rows


def test_the_words_are_explained_in_the_terminals_sentences(opened: Opened) -> None:
    words = opened.tab.locator("#words")
    words.locator("summary").click()
    said = " ".join(words.locator("p, dt, dd").all_inner_texts())
    for origin, meaning in ORIGINS.items():
        assert f"{origin} {meaning}" in said
    assert "H heads D numbers per head" in said


def test_a_long_text_is_drawn_in_part_and_followed_whole(
    browser: Any, tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    text = "The river bank was muddy. " * 11
    ran = main("--page", str(file), "--text", text, "--heads", "12", "--head-dim", "2")
    assert (ran.code, ran.err) == (0, "")
    opened = Opened(browser, file)
    section = opened.open_step(16)
    assert "numbers are shown" in section.inner_text()
    tokens = len(opened.data["tokens"])
    assert tokens > 60
    opened.cell("mha_context_vectors", 0, tokens - 1, 0).click()
    opened.tab.evaluate("scrollTo(0, document.body.scrollHeight)")
    opened.tab.locator("#dock").wait_for()
    stop = opened.tab.locator("#dock li", has_text="x_batch").inner_text()
    assert "[0, :, :]" in stop
    assert opened.tab.evaluate("document.documentElement.scrollWidth") <= 1440
    opened.close()


# The report


def test_the_report_has_the_first_wrong_line_in_view(
    browser: Any, report: Path
) -> None:
    for width in (390, 1024, 1440):
        opened = Opened(browser, report, viewport={"width": width, "height": 800})
        marked = opened.tab.locator(".trace tr.first")
        assert marked.count() == 1
        assert "first wrong" in marked.inner_text()
        said = opened.tab.locator(".told p").first
        assert said.inner_text().startswith("Line 43: mixed = mixed.reshape(")
        assert said.bounding_box()["y"] < 400
        wrong, right = opened.tab.locator(".repair td").all()
        assert "mixed.reshape(" in wrong.inner_text()
        assert "mixed.transpose(1, 2).reshape(" in right.inner_text()
        assert right.bounding_box()["y"] < 720
        assert opened.tab.evaluate("document.documentElement.scrollWidth") <= width
        cut = """all => all.filter(one => one.scrollWidth > one.clientWidth
            || one.getBoundingClientRect().right > innerWidth).length"""
        told = opened.tab.locator(".told, table.repair, .trace, .scroll:not(.flow *)")
        assert told.count() == 6
        assert told.evaluate_all(cut) == 0
        marked.locator("a").click()
        box = opened.tab.locator(".tensor.first")
        assert "the first wrong line" in box.inner_text()
        assert 0 <= box.bounding_box()["y"] < 700
        opened.close()


def test_the_report_lights_and_computes(browser: Any, report: Path) -> None:
    opened = Opened(browser, report)
    data = opened.data
    mixed = next(k for k, t in enumerate(data["tensors"]) if t["function"] == "bmm")
    opened.tab.locator(f"[data-t='{mixed}'] td[data-e='0']").first.click()
    dock = opened.tab.locator("#dock").inner_text()
    assert "mixed[0, 0, 0]" in dock
    assert " × " in dock
    wrong = next(k for k, t in enumerate(data["tensors"]) if t.get("mark") == "first")
    e = element(data, wrong, (0, 0, 0))
    opened.tab.locator(f"[data-t='{wrong}'] td[data-e='{e}']").first.click()
    assert opened.tab.locator(f"[data-t='{mixed}'] td.same").count() == 1
    opened.close()


def test_a_proved_repair_stands_beside_what_is_wrong(
    browser: Any, tmp_path: Path
) -> None:
    from steps.debugger.page import write_report
    from steps.debugger.result import Diagnosis

    source = tmp_path / "mine.py"
    source.write_text("a = 1\nq = q.view(b, h, t, d)\n", encoding="utf-8")
    result = Diagnosis(str(source), "fault", line=2, statement="q = q.view(b, h, t, d)")
    result.repair = [{"line": 2, "new": "q = q.view(b, t, h, d).transpose(1, 2)"}]
    write_report([result], str(tmp_path / "report.html"))
    opened = Opened(browser, tmp_path / "report.html")
    cells = opened.tab.locator(".repair tbody tr > *").all_inner_texts()
    assert cells == [
        "2",
        "q = q.view(b, h, t, d)",
        "q = q.view(b, t, h, d).transpose(1, 2)",
    ]
    opened.close()


# For everybody


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1024, 1440, 1920])
def test_axe_finds_nothing(
    browser: Any, made: Path, report: Path, width: int, scheme: str
) -> None:
    size = {"width": width, "height": 800}
    opened = Opened(browser, made, viewport=size, color_scheme=scheme)
    assert opened.axe() == []
    opened.open_step(15)
    opened.open_step(17)
    opened.tab.evaluate(
        "document.querySelector('[data-motion=\"wrong turn\"]').click()"
    )
    press(opened, "playing")
    opened.cell("head_contexts", 0, 1, 2, 0).click()
    assert opened.axe() == []
    opened.tab.locator("#predict").click()
    assert opened.axe() == []
    opened.close()
    opened = Opened(browser, report, viewport=size, color_scheme=scheme)
    assert opened.axe() == []
    opened.close()


def test_what_has_the_focus_is_seen_at_200_percent_zoom(
    browser: Any, made: Path
) -> None:
    """A window of 1280 x 800 pixels at 200 % zoom: the dock must not cover the focus."""
    opened = Opened(
        browser, made, viewport={"width": 640, "height": 400}, device_scale_factor=2
    )
    for name in ("packed_queries", "joined_contexts", "mha_context_vectors"):
        opened.cell(name, 0, 0, 0).focus()
        for key in ("ArrowDown", "ArrowRight", "ArrowDown"):
            opened.tab.keyboard.press(key)
        opened.frame()
        assert opened.tab.evaluate(
            """() => {
                const cell = document.activeElement, box = cell.getBoundingClientRect();
                const at = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
                return cell.tagName === "TD" && (at === cell || cell.contains(at));
            }"""
        ), name
    opened.close()


def test_forced_colours_tell_all_marks_apart(browser: Any, made: Path) -> None:
    opened = Opened(browser, made, forced_colors="active")
    looks = opened.tab.evaluate(
        """() => [...document.querySelectorAll(".legend i")].map(one => {
            const css = getComputedStyle(one);
            return [css.borderStyle, css.borderWidth, css.backgroundColor].join(" ");
        })"""
    )
    assert len(set(looks)) == len(looks) == 6
    opened.close()


def test_print_is_the_open_step(browser: Any, made: Path) -> None:
    opened = Opened(browser, made)
    opened.tab.emulate_media(media="print")
    assert opened.tab.locator("#picture").is_visible()  # none is open
    opened.tab.emulate_media(media="screen")
    opened.open_step(15)
    opened.tab.emulate_media(media="print")
    assert opened.tab.locator("#step15 table").first.is_visible()
    for part in ("#step16", "#dock", "#picture", ".tools"):
        assert not opened.tab.locator(part).first.is_visible()
    pages = opened.tab.pdf().count(b"/Type /Page\n")
    assert 1 <= pages <= 12
    opened.close()


def test_without_scripts_it_says_where_to_read_on(browser: Any, made: Path) -> None:
    opened = Opened(browser, made, java_script_enabled=False)
    assert "python gptversion.py" in opened.tab.locator("noscript").inner_text()
    assert opened.tab.locator("button:visible").count() == 0
    opened.close()


def test_the_text_cannot_break_the_page(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    ran = main("--page", str(file), "--text", HOSTILE)
    assert (ran.code, ran.err) == (0, "")
    opened = Opened(browser, file)
    assert opened.tab.locator("#hurt").count() == 0
    assert HOSTILE in opened.tab.locator(".sentence bdi").text_content()
    assert opened.tab.locator("section.step").count() > 20
    opened.close()


def test_the_picture_in_the_readme_is_of_this_page(browser: Any, made: Path) -> None:
    now = picture(browser, made)
    assert now[:8] == b"\x89PNG\r\n\x1a\n"
    kept = PICTURE.read_bytes()
    assert digest_of(kept) == digest_of(now), "python tests/picture.py makes it anew"
    assert kept[16:24] == now[16:24]  # as wide and as high
    assert len(kept) < 400_000
