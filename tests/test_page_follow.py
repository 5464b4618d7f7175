"""Where numbers come from and go to on the page, every one, against plain loops.

The page's own script follows its maps; the loops here know only what attention is.
"""

import json
from collections import defaultdict
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

# ruff: noqa: E501 -- scripts for the browser are easier to read unbroken
import pytest
from opened import data_of, place_of
from program import document, main

from steps.walk import page

Element = tuple[str, int]
Sources = dict[str, list[set[Element]]]
SIZES = {
    "two heads": (),
    "three heads": ("--heads", "3", "--head-dim", "2", "--d-in", "5"),
    "twelve heads": ("--heads", "12", "--head-dim", "2", "--dropout", "0.2"),
}


@pytest.fixture(scope="module", params=SIZES.values(), ids=list(SIZES))
def data(
    request: pytest.FixtureRequest, made: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    file = made
    if request.param:
        file = tmp_path_factory.mktemp("sized") / "page.html"
        assert main("--page", str(file), *request.param).code == 0
    return data_of(file) | {"kept": kept_by_dropout(request.param)}


def kept_by_dropout(flags: tuple[str, ...]) -> list[bool]:
    """Which weights dropout leaves, as the walk's document has them."""
    walk = document(*flags)
    (made,) = (
        tensor
        for step in walk["steps"]
        for tensor in step["tensors"]
        if tensor["name"] == "dropped_weights"
    )
    return [w != 0 for head in made["values"][0] for row in head for w in row]


def loops(data: dict[str, Any], wrong: bool) -> Sources:
    """What every element of the walk was made of, found by loops over indices.

    Weights that dropout or the mask set to 0 are made of nothing and carry nothing on.
    """
    shape = {
        name: data["tensors"][place_of(data, name)]["shape"]
        for name in ("x_batch", "head_queries")
    }
    (_, T, d_in), (_, H, _, D) = shape["x_batch"], shape["head_queries"]
    known: Sources = {}

    def add(name: str, parts: list[list[Element]]) -> None:
        """parts: for every element, those it was made of directly."""
        known[name] = [
            set(own) | {old for (n, e) in own for old in known.get(n, {})[e]}
            for own in parts
        ]

    add("x_batch", [[] for _ in range(T * d_in)])
    for role, many in (("query", "queries"), ("key", "keys"), ("value", "values")):
        weight = f"mha_W_{role}.weight"
        add(weight, [[] for _ in range(H * D * d_in)])
        add(
            f"packed_{many}",
            [
                [("x_batch", t * d_in + i) for i in range(d_in)]
                + [(weight, c * d_in + i) for i in range(d_in)]
                for t, c in product(range(T), range(H * D))
            ],
        )
        as_stored = [[(f"packed_{many}", e)] for e in range(T * H * D)]
        if wrong:  # view alone, of what is packed
            add(f"head_{many}", as_stored)
        else:
            add(f"{many}_by_token", as_stored)
            add(
                f"head_{many}",
                [
                    [(f"{many}_by_token", (t * H + h) * D + d)]
                    for h, t, d in product(range(H), range(T), range(D))
                ],
            )
    heads = list(product(range(H), range(T), range(T)))

    def row(name: str, h: int, t: int) -> list[Element]:
        return [(name, (h * T + t) * D + d) for d in range(D)]

    add(
        "head_raw_scores",
        [row("head_queries", h, i) + row("head_keys", h, j) for h, i, j in heads],
    )
    seen = [j <= i for _, i, j in heads]
    at = {index: e for e, index in enumerate(heads)}
    add("scaled", [[("head_raw_scores", e)] for e in range(len(heads))])
    add("masked", [[("scaled", e)] if seen[e] else [] for e in range(len(heads))])
    add(
        "head_attention_weights",
        [
            [("masked", at[h, i, k]) for k in range(i + 1)] if j <= i else []
            for h, i, j in heads
        ],
    )
    kept = data["kept"]
    add(
        "dropped_weights",
        [[("head_attention_weights", e)] if kept[e] else [] for e in range(len(heads))],
    )
    add(
        "head_contexts",
        [
            [
                part
                for j in range(T)
                if kept[at[h, i, j]]
                for part in (
                    ("dropped_weights", at[h, i, j]),
                    ("head_values", (h * T + j) * D + d),
                )
            ]
            for h, i, d in product(range(H), range(T), range(D))
        ],
    )
    add(
        "joined_contexts",
        [
            [("head_contexts", (h * T + t) * D + d)]
            for t, h, d in product(range(T), range(H), range(D))
        ],
    )
    add("out_proj.weight", [[] for _ in range((H * D) ** 2)])
    add(
        "mha_context_vectors",
        [
            [("joined_contexts", t * H * D + c) for c in range(H * D)]
            + [("out_proj.weight", o * H * D + c) for c in range(H * D)]
            for t, o in product(range(T), range(H * D))
        ],
    )
    return known


def by_name(elements: Iterable[Element]) -> defaultdict[str, set[int]]:
    """The elements of each tensor."""
    found: defaultdict[str, set[int]] = defaultdict(set)
    for name, e in elements:
        found[name].add(e)
    return found


FOLLOW = """({names, wrong}) => {
    const {tensors, data} = $data, {follow, findUsers} = $follow, found = {};
    for (const t of tensors) t.take(wrong && data.turn.swaps[t.id] || null);
    findUsers();
    const list = (sets, kinds, id) => {
        const out = [];
        for (let e = 0; e < tensors[id].size; e++) if (kinds.some(kind => sets[kind].get(id)?.[e])) out.push(e);
        return out;
    };
    for (const [name, id] of Object.entries(names))
        found[name] = Array.from({length: tensors[id].size}, (_, e) => {
            const sets = follow(id, [e]), each = {};
            for (const [other, at] of Object.entries(names)) each[other] = [list(sets, [0, 1, 3], at), list(sets, [0, 2, 4], at)];
            return each;
        });
    return found;
}"""


@pytest.mark.parametrize("wrong", [False, True], ids=["right", "wrong turn"])
def test_every_element_comes_from_and_goes_into_what_loops_say(
    browser: Any, data: dict[str, Any], wrong: bool
) -> None:
    known = loops(data, wrong)
    names = {name: place_of(data, name) for name in known}
    tab = browser.new_page()
    tab.set_content('<script type="application/json" id="data"></script>')
    put = "text => { document.getElementById('data').textContent = text; }"
    tab.evaluate(put, json.dumps(data))
    script = page.bundle(("data.js", "follow.js"))
    tab.evaluate(
        f"() => {{ {script}\nwindow.$data = $data; window.$follow = $follow; }}"
    )
    followed = f"told => JSON.stringify(({FOLLOW})(told))"  # read faster as text
    found = json.loads(tab.evaluate(followed, {"names": names, "wrong": wrong}))
    tab.close()
    order, compared = list(known), 0
    goes: dict[Element, set[Element]] = {}
    for name, elements in known.items():
        for e, sources in enumerate(elements):
            for source in sources:
                goes.setdefault(source, set()).add((name, e))
    for at, name in enumerate(order):
        for e, told in enumerate(found[name]):
            sources, users = by_name(known[name][e]), by_name(goes.get((name, e), ()))
            for k, other in enumerate(order):
                came, went = told[other]
                if k < at:
                    assert set(came) == sources[other], (name, e, "from", other)
                    compared += 1
                elif k > at:
                    assert set(went) == users[other], (name, e, "to", other)
                    compared += 1
    assert compared > 5000
