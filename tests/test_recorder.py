"""The recorder on its own: names, places, origins and storage, on small modules."""

import importlib.util
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from steps.walk.recorder import Entry, Recorder

MADE = 0


@pytest.fixture
def record(tmp_path: Path):
    """Run `run(**arguments)` of a source text and give what was recorded."""

    def run(source: str, **arguments: Any) -> list[Entry]:
        module = loaded(tmp_path, source)
        with torch.no_grad(), Recorder([str(module.__file__)], arguments) as recorder:
            module.run(**arguments)
        return recorder.entries

    return run


def loaded(folder: Path, source: str) -> ModuleType:
    global MADE
    MADE += 1
    file = folder / f"watched{MADE}.py"
    file.write_text("import torch\nfrom torch import nn\n" + textwrap.dedent(source))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def named(entries: list[Entry]) -> dict[str, Entry]:
    return {entry.name: entry for entry in entries if entry.name}


def summary(entries: list[Entry]) -> list[tuple[str, tuple[int, ...], str, str | None]]:
    return [(e.name, e.shape, e.origin, e.shares_storage_with) for e in entries]


X = torch.arange(24.0).reshape(1, 4, 6)


def test_every_link_of_a_chain(record) -> None:
    entries = record(
        """
        def run(x):
            heads = x.view(1, 4, 2, 3).transpose(1, 2).contiguous()
        """,
        x=X,
    )
    assert summary(entries) == [
        ("", (1, 4, 2, 3), "rearranged", "x"),
        ("", (1, 2, 4, 3), "rearranged", "x"),
        ("heads", (1, 2, 4, 3), "copied", None),
    ]
    assert [entry.stride for entry in entries] == [
        (24, 6, 3, 1),
        (24, 3, 6, 1),
        (24, 12, 3, 1),
    ]
    assert [entry.contiguous for entry in entries] == [True, False, True]
    assert entries[1].expression == "x.view(1, 4, 2, 3).transpose(1, 2)"
    assert {entry.statement for entry in entries} == {
        "heads = x.view(1, 4, 2, 3).transpose(1, 2).contiguous()"
    }


def test_names_of_tuples_and_of_several_results(record) -> None:
    entries = named(
        record(
            """
            def run(x):
                a, b = x + 1, x - 1
                first, second = x.split(3, dim=-1)
                q, k, v = (x * scale for scale in (2, 3, 4))
                (total := x.sum())
                typed: torch.Tensor = x.exp()
            """,
            x=X,
        )
    )
    assert set(entries) == {
        "a",
        "b",
        "first",
        "second",
        "q",
        "k",
        "v",
        "total",
        "typed",
    }
    assert torch.equal(entries["second"].numbers(), X[..., 3:])
    assert entries["second"].offset == 3
    assert torch.equal(entries["b"].numbers(), X - 1)
    assert torch.equal(entries["v"].numbers(), X * 4)


def test_a_statement_over_several_lines_and_in_other_letters(record) -> None:
    entries = named(
        record(
            """
            def run(x):
                größe = x * 2; doubled = (größe
                    .transpose(1, 2)  # a remark
                    @ x)
            """,
            x=X,
        )
    )
    assert set(entries) == {"größe", "doubled"}
    assert entries["doubled"].shape == (1, 6, 6)


def test_in_place_calls_do_not_change_what_was_recorded(record) -> None:
    entries = record(
        """
        def run(x):
            scores = x * 1
            scores.masked_fill_(x > 3, -1.0)
            scores += 1
            scores[0, 0] = 7.0
        """,
        x=X,
    )
    before = named(entries[:1])["scores"].numbers()
    assert torch.equal(before, X)
    in_place = [entry for entry in entries if entry.in_place]
    assert [entry.shares_storage_with for entry in in_place] == ["scores"] * len(
        in_place
    )
    assert len(in_place) >= 2
    assert torch.equal(in_place[0].numbers(), X.masked_fill(X > 3, -1.0))
    assert torch.equal(in_place[1].numbers(), X.masked_fill(X > 3, -1.0) + 1)


def test_dropout_out_of_training_gives_the_same_tensor(record) -> None:
    entries = named(
        record(
            """
            def run(x):
                dropout = nn.Dropout(0.5).eval()
                dropped = dropout(x)
            """,
            x=X,
        )
    )
    assert entries["dropped"].origin == "unchanged"
    assert entries["dropped"].shares_storage_with == "x"


def test_recording_does_not_change_what_is_drawn(record) -> None:
    source = """
        def run(x):
            dropout = nn.Dropout(0.5)
            dropped = dropout(x)
            noise = torch.rand(3)
        """
    torch.manual_seed(5)
    expected = torch.nn.functional.dropout(X, 0.5), torch.rand(3)
    torch.manual_seed(5)
    entries = named(record(source, x=X))
    assert torch.equal(entries["dropped"].numbers(), expected[0])
    assert torch.equal(entries["noise"].numbers(), expected[1])
    assert entries["dropped"].origin == "computed"


def test_transposed_attributes(record) -> None:
    entries = named(
        record(
            """
            def run(x):
                turned = x[0].T
                batch_turned = x.mT
            """,
            x=X,
        )
    )
    assert entries["turned"].shape == (6, 4)
    assert entries["batch_turned"].shape == (1, 6, 4)
    for entry in entries.values():
        assert (entry.origin, entry.shares_storage_with) == ("rearranged", "x")


def test_a_reshape_copies_only_where_it_must(record) -> None:
    entries = named(
        record(
            """
            def run(x):
                viewed = x.reshape(1, 4, 2, 3)
                heads = viewed.transpose(1, 2)
                merged = heads.reshape(1, 4, 6)
            """,
            x=X,
        )
    )
    assert entries["viewed"].origin == "rearranged"
    assert (entries["merged"].origin, entries["merged"].shares_storage_with) == (
        "copied",
        None,
    )


def test_contiguous_copies_nothing_for_one_head(record) -> None:
    entries = record(
        """
        def run(x):
            joined = x.view(1, 4, 1, 6).transpose(1, 2).contiguous()
        """,
        x=X,
    )
    origins = ["rearranged", "rearranged", "unchanged"]
    assert [entry.origin for entry in entries] == origins
    assert all(entry.contiguous for entry in entries)


@pytest.mark.parametrize(
    ("call", "origin"),
    [
        ("torch.cat((x, x), dim=1)", "copied"),
        ("x.clone()", "copied"),
        ("x.flip(1)", "copied"),
        ("x.index_select(1, torch.tensor([2, 0]))", "copied"),
        ("nn.functional.embedding(torch.tensor([1, 0]), x[0])", "copied"),
        ("x.expand(2, 4, 6)", "rearranged"),
        ("x.unsqueeze(0)", "rearranged"),
        ("x[:, 1:3]", "rearranged"),
        ("x * 1.5", "computed"),
        ("x.abs()", "computed"),  # the same numbers here, by luck
        ("x.max()", "computed"),  # it compares, though its result was there
        ("x.amin(dim=-1)", "computed"),
        ("-x", "computed"),
        ("x.mean(dim=1)", "computed"),
        ("x.softmax(dim=-1)", "computed"),
        ("torch.zeros(2, 3)", "made"),
        ("torch.tensor([[1.0, 2.0]])", "made"),
        ("torch.arange(4)", "made"),
        ("torch.rand(2, 3)", "drawn"),
        ("torch.randn(2, 3)", "drawn"),
        ("torch.empty(2, 3).uniform_()", "computed"),  # in place, on one that was made
        ("torch.rand_like(x)", "computed"),  # a tensor went in
        ("nn.functional.dropout(x, 0.5)", "computed"),
        ("nn.functional.dropout(x, 0.0)", "unchanged"),
        ("x.contiguous()", "unchanged"),
        ("x.float()", "unchanged"),
        ("x.view(4, 6)", "rearranged"),
    ],
)
def test_origins_are_measured(record, call: str, origin: str) -> None:
    entry = record(f"def run(x):\n    made = {call}\n", x=X)[-1]
    assert entry.origin == origin


def test_weights_are_drawn_made_or_copied_as_they_were_filled(tmp_path) -> None:
    module = loaded(
        tmp_path,
        """
        from steps.pytorch import loaded

        def run(weight):
            drawn = nn.Linear(6, 4, bias=False)  # weight (4, 6)
            given = loaded(nn.Linear(6, 4, bias=False), {"weight": weight})  # (4, 6)
            ones = nn.LayerNorm(6, bias=False)  # weight (6)
            untold = nn.Linear(6, 4, bias=False)
            return drawn, given, ones, untold
        """,
    )
    file = str(module.__file__)
    with torch.no_grad(), Recorder([file]) as recorder:
        layers = module.run(X[0])
    names = ("drawn", "given", "ones", "untold")
    recorder.name_outputs(file, "run", dict(zip(names, layers, strict=True)))
    origins = {entry.name: entry.origin for entry in recorder.entries}
    assert origins == {
        "drawn.weight": "drawn",
        "given.weight": "copied",
        "ones.weight": "made",
    }


def test_calls_of_other_files_count_as_the_call_that_led_there(record) -> None:
    entries = record(
        """
        def run(x):
            layer = nn.Linear(6, 2, bias=False)
            projected = layer(x)
        """,
        x=X,
    )
    assert [entry.name for entry in entries] == ["projected"]
    assert entries[0].shape == (1, 4, 2)


def test_each_result_of_a_layer_that_gives_two(tmp_path: Path) -> None:
    """The layer makes many calls; which of them made which result, only it knows."""
    module = loaded(
        tmp_path,
        """
        def step(x):
            mha = nn.MultiheadAttention(6, 2, batch_first=True)
            contexts, weights = mha(x, x, x)
            _, head_weights = mha(x, x, x, average_attn_weights=False)  # (B, H, T, T)
            same = weights
            return locals()
        """,
    )
    sizes = {"B": 1, "T": 4, "H": 2}
    with torch.no_grad(), Recorder([str(module.__file__)], sizes=sizes) as recorder:
        outputs = module.step(X)
    recorder.name_outputs(str(module.__file__), "step", outputs)
    entries = named(recorder.entries)
    assert list(entries) == ["contexts", "weights", "head_weights"]
    for name, entry in entries.items():
        assert torch.equal(entry.tensor, outputs[name])
        assert entry.origin == "computed"
    assert entries["head_weights"].axes == ("B", "H", "T", "T")


def test_one_place_in_a_loop_is_recorded_each_time(record) -> None:
    entries = record(
        """
        def run(x):
            for head in range(3):
                part = x[..., head]
        """,
        x=X,
    )
    assert [entry.offset for entry in entries] == [0, 1, 2]
    assert {entry.name for entry in entries} == {"part"}


def test_the_sizes_are_filled_in(record) -> None:
    (entry,) = record(
        """
        def run(x):
            B, T, H, D = 1, 4, 2, 3
            heads = x.view(B, T, H, D)  # (B, T, H, D)
        """,
        x=X,
    )
    assert entry.here == "heads = x.view(1, 4, 2, 3)"
    assert entry.axes == ("B", "T", "H", "D")


def test_a_wrong_axes_comment_is_our_own_error(record) -> None:
    with pytest.raises(AssertionError, match=r"the comment says \(B, H, T, D\)"):
        record(
            """
            def run(x):
                B, T, H, D = 1, 4, 2, 3
                heads = x.view(B, T, H, D)  # (B, H, T, D)
                again = heads + 1
            """,
            x=X,
        )


def test_one_comment_over_statements_that_make_the_same_call(record) -> None:
    source = """
        def run(x):
            B, T, H, D = 1, 4, 2, 3
            # (B, T, H, D)
            queries = x.view(B, T, H, D)
            keys = x.view(B, T, H, D)
            rest = x.view(T, 6)
            other = x.view(B, T, H, D)
        """
    entries = named(record(source, x=X))
    assert entries["queries"].axes == entries["keys"].axes == ("B", "T", "H", "D")
    assert entries["rest"].axes == ("4", "6")
    assert entries["other"].axes == ("1", "4", "2", "3")
    wrong = source.replace("rest = x.view(T, 6)", "rest = x.view(B, T, H, D)")
    wrong = wrong.replace("# (B, T, H, D)", "# (B, H, T, D)")
    with pytest.raises(AssertionError, match=r"the comment says \(B, H, T, D\)"):
        record(wrong, x=X)


def test_an_error_in_the_watched_file_passes_through(record) -> None:
    with pytest.raises(RuntimeError, match="invalid for input of size 24"):
        record("def run(x):\n    wrong = x.view(5, 5)\n", x=X)


def test_by_line_where_python_gives_no_columns(
    record, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.10: a line's last call has the name, links of a chain have none."""
    from steps.walk import recorder
    from steps.walk.source import Place

    def by_line(self: Recorder, frame: Any) -> Place:
        line = frame.f_lineno
        return Place(frame.f_code.co_filename, line, line, None, None)

    monkeypatch.setattr(recorder.Recorder, "_place", by_line)
    entries = record(
        """
        def run(x):
            heads = x.view(1, 4, 2, 3).transpose(1, 2)
            first, second = x.split(3, dim=-1)
            scores = heads @ heads.mT
        """,
        x=X,
    )
    assert [(entry.name, entry.shape) for entry in entries] == [
        ("", (1, 4, 2, 3)),
        ("heads", (1, 2, 4, 3)),
        ("first", (1, 4, 3)),
        ("second", (1, 4, 3)),
        ("", (1, 2, 3, 4)),
        ("scores", (1, 2, 4, 4)),
    ]
