"""MAINTAINING.md's map of the rooms, held against what the files import."""

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatch

import pytest
from program import ROOT

PAGE = (ROOT / "MAINTAINING.md").read_text(encoding="utf-8")
ROWS = re.findall(r"(?m)^\| (`.+?) +\| .+? \| (.+?) +\|$", PAGE)
ENTRIES, *_ = ROOMS = [tuple(re.findall(r"`(.+?)`", room)) for room, _ in ROWS]
GROUND = [room for room, (_, may) in zip(ROOMS, ROWS, strict=True) if may == "below"]
MAY = {  # beside the ground
    room: {other for other in ROOMS if {*other} & {*re.findall(r"`(.+?)`", may)}}
    for room, (_, may) in zip(ROOMS, ROWS, strict=True)
}
FILES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (*ROOT.glob("*.py"), *ROOT.glob("steps/**/*.py"), *ROOT.glob("data/*"))
    if path.suffix == ".py"
)


def room_of(file: str) -> tuple[str, ...]:
    """The first room of the map that a file is in; () for none."""
    name = file.removeprefix("steps/").removesuffix(".py")
    found = (
        r for r in ROOMS if any(fnmatch(name, n + "*" * n.endswith("/")) for n in r)
    )
    return next(found, ())


def is_main(node: ast.AST) -> bool:
    """The lines that run only where a file is the program."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == (
        "__name__ == '__main__'"
    )


def nodes(tree: ast.AST, main: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """Every node, and whether it is of the program's lines."""
    for node in ast.iter_child_nodes(tree):
        within = main or is_main(node)
        yield node, within
        yield from nodes(node, within)


def imported(node: ast.AST) -> Iterator[str]:
    """The files of ours that an import names."""
    names = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        assert not node.level, "the steps import by whole names"
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    for name in names:
        path = name.replace(".", "/")
        around = path.rpartition("/")[0]
        places = (f"{path}.py", f"{around}.py", f"{path}/__init__.py")
        yield from [p for p in (*places, f"{around}/__init__.py") if p in FILES][:1]


def arrows() -> Iterator[tuple[str, tuple[str, ...], str]]:
    """(file, the room that it is in there, the file that it imports)."""
    for file in FILES:
        for node, main in nodes(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
            for other in imported(node):
                yield file, ENTRIES if main else room_of(file), other


ARROWS = list(arrows())


def test_every_file_is_in_a_room() -> None:
    assert len(ARROWS) > 500
    assert [file for file in FILES if not room_of(file)] == []
    assert {room_of(file) for file in FILES} == {*ROOMS}


@pytest.mark.parametrize("room", ROOMS, ids=", ".join)
def test_a_room_imports_what_the_map_says(room: tuple[str, ...]) -> None:
    """What it names, all of it, and the ground below."""
    allowed = {room, *MAY[room], *GROUND}
    beyond = [
        f"{file} imports {other}"
        for file, here, other in ARROWS
        if here == room and room_of(other) not in allowed
    ]
    assert beyond == []
    assert MAY[room] <= {room_of(other) for _, here, other in ARROWS if here == room}


def test_arrows_run_down_only() -> None:
    assert ROOMS[-len(GROUND) :] == GROUND
    for at, room in enumerate(ROOMS):
        found = {room_of(other) for _, here, other in ARROWS if here == room}
        assert MAY[room] | found <= {*ROOMS[at:]}, room


def test_only_the_order_of_the_steps_imports_by_name() -> None:
    by_name = [
        file
        for file in FILES
        if "import_module(" in (ROOT / file).read_text(encoding="utf-8")
    ]
    assert by_name == ["steps/steps.py", "steps/walk/order.py"]
