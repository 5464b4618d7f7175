"""The page: what is written and where, and how it is put together."""

import base64
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opened import data_of
from program import PROGRAM, command, main

from steps.pytorch import torch
from steps.walk import page
from steps.walk.formula import formula

# What is written


def test_at_most_300_kilobytes(made: Path) -> None:
    assert made.stat().st_size <= 300_000


def test_the_same_bytes_again(made: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.html"
    ran = command(PROGRAM, "--quiet", "--page", str(other), PYTHONHASHSEED="7")
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


def parts() -> dict[str, str]:
    """The files that the page is put together from."""
    return {f.name: f.read_text(encoding="utf-8") for f in page.WEB.iterdir()}


def test_nothing_is_loaded_from_anywhere() -> None:
    signs = ("http:", "https:", "//cdn", "src=", "@import", "url(", "<link", "fetch(")
    text = page.bundle(page.SCRIPTS) + "".join(parts()[name] for name in page.STYLES)
    text = text.replace("http://www.w3.org/2000/svg", "")  # a name, not an address
    for sign in (*signs, "import(", "XMLHttp", "eval(", "innerHTML"):
        assert sign not in text, sign


def test_the_page_is_put_together_from_every_file_and_none_is_long() -> None:
    assert {*page.STYLES, *page.SCRIPTS, "page.html"} == set(parts())
    for name, text in parts().items():
        assert text.count("\n") <= 300, name


def test_a_tensor_of_the_page_is_told_of_as_in_the_document(
    made: Path, walk_document: dict[str, Any]
) -> None:
    """One schema: the page leaves out what is empty, and "values" and "statement"."""
    told = [t for t in data_of(made)["tensors"] if "wrong" not in t]
    ours = [t for s in walk_document["steps"] for t in s["tensors"]]
    assert len(told) == len(ours)
    for short, full in zip(told, ours, strict=True):
        for key in set(full) - {"values", "statement", "letters"}:
            assert short.get(key, type(full[key])()) == full[key] or not full[key]
        assert short.get("letters", short["axes"]) == full["letters"]


def test_numbers_are_exact(made: Path, walk_document: dict[str, Any]) -> None:
    compared = 0
    told = [t for t in data_of(made)["tensors"] if "wrong" not in t]
    ours = [t for s in walk_document["steps"] for t in s["tensors"]]
    for short, full in zip(told, ours, strict=True):
        if isinstance(short.get("numbers"), str) and not {"window", "rows"} & set(
            short
        ):
            data = base64.b64decode(short["numbers"])
            numbers = torch.frombuffer(bytearray(data), dtype=torch.float32)
            plain = [[float(v) for v in flat(full["values"])]]
            assert torch.equal(numbers, torch.tensor(plain[0])), full["name"]
            compared += numbers.numel()
    assert compared > 1500


def flat(values: Any) -> list[Any]:
    if not isinstance(values, list):
        return [values]
    return [one for value in values for one in flat(value)]


def test_what_a_tensor_holds_is_measured_not_named(walk_document: dict) -> None:
    """Weights by their numbers, whatever they are called; a dropped score is none."""
    holds = {}
    for step in walk_document["steps"]:
        for t in [
            *step["tensors"],
            *(t for w in step["wrong_turns"] for t in w["tensors"]),
        ]:
            holds[step["number"], t["name"]] = t["holds"]
    assert holds[10, "masked_simple_norm"] == holds[10, "masked_simple"] == "weights"
    assert (
        holds[17, "head_attention_weights"] == holds[18, "dropped_weights"] == "weights"
    )
    assert holds[18, "dropped_scores"] == holds[16, "head_raw_scores"] == "scores"
    assert holds[17, "causal_mask"] == holds[10, "mask_simple"] == "mask"
    assert holds[15, "packed_queries"] == holds[14, "mha_W_query.weight"] == ""


def test_a_formula_that_is_not_true_is_not_told() -> None:
    source = torch.tensor([[1.0, 2.0]])
    true, untrue = source / 2, source / 2 + 1
    for result, told in ((true, True), (untrue, False)):
        entry = SimpleNamespace(
            call=(torch.div, (source, 2), {}),
            tensor=result,
            function="div",
            numbers=lambda result=result: result,
        )
        assert bool(formula(entry, {id(source): 0})) == told  # type: ignore[arg-type]


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
