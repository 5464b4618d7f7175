"""`gptversion.py --json`: the contract that other programs rely on."""

import json
import math
from typing import Any

import pytest
from program import document, main

from steps.walk.order import titles
from steps.walk.recorder import ORIGINS

TENSOR = {
    "name": str,
    "statement": str,
    "shape": list,
    "axes": list,
    "stride": list,
    "contiguous": bool,
    "origin": str,
    "shares_storage_with": (str, type(None)),
}


def shape_of(values: Any) -> list[int]:
    """The shape of nested lists, every one of a level having the same length."""
    if not isinstance(values, list):
        return []
    shapes = [shape_of(value) for value in values]
    assert all(shape == shapes[0] for shape in shapes)
    return [len(values), *(shapes[0] if shapes else [])]


def row_major(shape: list[int], stride: list[int]) -> bool:
    """Whether the elements lie one after the other; an axis of size 1 never matters."""
    step = 1
    for size, found in zip(reversed(shape), reversed(stride), strict=True):
        if size != 1 and found != step:
            return False
        step *= size
    return True


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--d-in", "5", "--heads", "3", "--head-dim", "2", "--dropout", "0.25"),
        ("--text", "the cat", "--d-in", "1", "--heads", "1", "--head-dim", "1"),
    ],
)
def test_contract(flags: tuple[str, ...]) -> None:
    walk = document(*flags)
    assert set(walk) >= {"torch", "seed", "steps"}
    assert walk["seed"] == 123
    assert [step["number"] for step in walk["steps"]] == [t.number for t in titles()]
    assert [step["title"] for step in walk["steps"]] == [t.title for t in titles()]
    for step in walk["steps"]:
        assert all(
            set(check) >= {"claim", "holds"} and check["holds"] is True
            for check in step["checks"]
        )
        for tensor in step["tensors"]:
            for key, kind in TENSOR.items():
                assert isinstance(tensor[key], kind), (tensor["name"], key)
            assert tensor["name"]
            assert tensor["name"].partition(".")[0] in tensor["statement"]
            if tensor["values"] is not None:
                assert shape_of(tensor["values"]) == tensor["shape"]
            assert len(tensor["axes"]) == len(tensor["stride"]) == len(tensor["shape"])
            assert all(isinstance(axis, str) and axis for axis in tensor["axes"])
            assert tensor["origin"] in ORIGINS
            assert tensor["contiguous"] == row_major(tensor["shape"], tensor["stride"])
            shares = tensor["shares_storage_with"] is not None
            moved = tensor["origin"] in ("rearranged", "unchanged")
            assert shares == moved, tensor["name"]


def test_an_axis_has_one_size_in_a_step(walk_document: dict) -> None:
    for step in walk_document["steps"]:
        sizes: dict[str, int] = {}
        for tensor in step["tensors"]:
            for axis, size in zip(tensor["axes"], tensor["shape"], strict=True):
                if axis not in ("B", "b"):
                    assert sizes.setdefault(axis, size) == size, (tensor["name"], axis)


def test_one_name_has_one_shape_in_a_step(walk_document: dict) -> None:
    for step in walk_document["steps"]:
        shapes: dict[str, list[int]] = {}
        for tensor in step["tensors"]:
            assert shapes.setdefault(tensor["name"], tensor["shape"]) == tensor["shape"]


def test_weights_are_there_under_the_articles_names(walk_document: dict) -> None:
    names = {
        tensor["name"] for step in walk_document["steps"] for tensor in step["tensors"]
    }
    assert names >= {
        "token_embedding_layer.weight",
        "position_embedding_layer.weight",
        "mha_W_query.weight",
        "mha_W_key.weight",
        "mha_W_value.weight",
        "out_proj.weight",
    }


def test_numbers_that_are_not_finite_are_strings(walk_document: dict) -> None:
    masked = next(
        tensor
        for step in walk_document["steps"]
        for tensor in step["tensors"]
        if tensor["name"] == "masked"
    )
    for head in masked["values"][0]:
        for i, row in enumerate(head):
            assert row[i + 1 :] == ["-inf"] * (len(row) - i - 1)
            assert all(isinstance(value, float) for value in row[: i + 1])
            assert all(math.isfinite(value) for value in row[: i + 1])


def test_text_of_any_script_comes_back_whole() -> None:
    text = "The 河 bank 🙂 שלום\twas\nmuddy"
    out = main("--json", "--text", text).out
    steps = json.loads(out)["steps"]
    assert steps[0]["checks"][0]["holds"] is True
