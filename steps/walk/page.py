"""The record as one self-contained page for the browser: `gptversion.py --page FILE`.

The page is web/page.html with the styles and scripts of that folder, and the record put
into it as JSON. Its policy lets nothing else run and nothing be loaded.

The data, for the whole walk: {"torch", "seed", "text", "sizes", "tokens", "follow",
"legend", "steps", "tensors", "texts", "turn", "picture"}; steps and tensors are told of
in gather.py, "picture" in picture.py. "turn" is the wrong turn of step 15, null where
it does no harm: {"call", "swaps": what tensors become, by their places}. Of tensors and
statements what is empty is left out: null, false, 0, "", "letters" like "axes", and the
"statement" of a tensor, which stands over it.
"""

import base64
import hashlib
import html
import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steps.errors import UserError
from steps.progress import Progress
from steps.walk.order import Walk, WrongWalk, titles
from steps.walk.text import LETTERS, MEASURED, ORIGINS

WEB = Path(__file__).with_name("web")
MARK = "<!-- multi-head attention, one shape at a time: made by gptversion.py -->"
STYLES = ("base.css", "tables.css", "picture.css", "steps.css", "media.css")
SCRIPTS = (
    "data.js",
    "follow.js",
    "names.js",
    "compute.js",
    "grid.js",
    "light.js",
    "address.js",
    "readout.js",
    "storage.js",
    "trail.js",
    "picture.js",
    "units.js",
    "lines.js",
    "turn.js",
    "motion.js",
    "predict.js",
    "steps.js",
    "main.js",
)
STEPS_OF_TURN = (5, 14, 15, 16, 17, 18, 19)  # what the wrong turn is drawn with


def write_page(settings: Mapping[str, Any], path: str, force: bool = False) -> None:
    """Write the page of the whole walk to `path`, at once or not at all.

    Raises UserError for a place that cannot be written and, unless `force`, for a file
    that is there and is no page of ours.
    """
    check_target(path, force)
    save(Path(path), whole_page(settings))


def check_target(path: str, force: bool) -> None:
    """Refuse, before any work is done, what could not or should not be written."""
    target = Path(path)
    try:
        os.stat(target)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:  # such as a name that is too long
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"--page: cannot write {str(target)[:60]!r}: {reason}"
        ) from None
    if target.is_dir():
        raise UserError(
            f"--page: {str(target)!r} is a directory; give a file, as in page.html"
        )
    if target.exists() and not target.is_file():
        raise UserError(f"--page: {str(target)!r} is no ordinary file; give another")
    if not target.parent.is_dir():
        raise UserError(f"--page: there is no directory {str(target.parent)!r}")
    if target.exists() and not force:
        try:
            with target.open("rb") as file:
                ours = MARK.encode() in file.read(1000)
        except OSError as error:
            raise UserError(
                f"--page: cannot read {str(target)!r}: {error.strerror}"
            ) from None
        if not ours:
            raise UserError(
                f"--page: {str(target)!r} exists and is no page made by this program; "
                "give another name, or --force to overwrite it"
            )
    try:
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise unwritable(target, error) from None


def save(target: Path, text: str) -> None:
    """Write a file beside the target and move it there: never half a page."""
    made = ""
    try:
        handle, made = tempfile.mkstemp(
            dir=target.parent, prefix=".page-", suffix=".html"
        )
        with os.fdopen(handle, "wb") as file:  # a name may be no UTF-8
            file.write(text.encode(errors="backslashreplace"))
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(made, 0o666 & ~mask)  # mkstemp's files are the owner's alone
        os.replace(made, target)
        made = ""
    except OSError as error:
        raise unwritable(target, error) from None
    finally:
        if made:
            os.remove(made)


def unwritable(target: Path, error: OSError) -> UserError:
    return UserError(f"--page: cannot write {str(target)!r}: {error.strerror}")


def whole_page(settings: Mapping[str, Any]) -> str:
    """The page of every step there is."""
    return render(whole_walk(settings), settings["text"])


def whole_walk(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The data of the whole walk."""
    from steps.pytorch import torch
    from steps.walk.gather import Gathered, swaps
    from steps.walk.picture import picture

    numbers = [title.number for title in titles()]
    right, wrong = Gathered(), Gathered()
    with Progress() as progress:
        for block in Walk(settings, keep_calls=True).blocks(numbers):
            progress(f"step {block.title.number} of {numbers[-1]}")
            right.block(block)
    numbers = [number for number in numbers if number in STEPS_OF_TURN]
    for block in WrongWalk(settings, keep_calls=True).blocks(numbers):
        wrong.block(block)
    right.finish()
    wrong.finish()
    found = swaps(right, wrong)
    tokens: list[str] = next(
        (step["tokens"] for step in right.steps if step["tokens"]), []
    )
    return {
        "torch": torch.__version__,
        "seed": settings["seed"],
        "text": settings["text"],
        "sizes": right.sizes,
        "tokens": tokens,
        "follow": settings["follow"],
        "legend": legend(),
        "steps": right.steps,
        "tensors": right.tensors,
        "texts": list(right.texts),
        "turn": turn_of(found) if found else None,
        "picture": picture(right),
    }


def slim(data: dict[str, Any]) -> dict[str, Any]:
    """The data without what is empty in its tensors and statements; see above."""

    def full(made: Mapping[str, Any]) -> dict[str, Any]:
        same = made.get("letters") == made.get("axes")
        return {
            key: value
            for key, value in made.items()
            if value not in (None, False, "")
            and not (key == "letters" and same)
            and key != "statement"
        }

    def groups(part: dict[str, Any]) -> dict[str, Any]:
        return part | {"groups": [full(group) for group in part["groups"]]}

    steps = [
        groups(step) | {"wrong_turns": [groups(turn) for turn in step["wrong_turns"]]}
        for step in data["steps"]
    ]
    return data | {"steps": steps, "tensors": [full(made) for made in data["tensors"]]}


def turn_of(swaps: Mapping[int, Any]) -> dict[str, Any]:
    """The wrong turn, for the script."""
    first = next(iter(swaps.values()))
    return {"call": first["here"].partition(".")[2], "swaps": swaps}


def legend() -> list[str | list[str]]:
    """What the words and letters mean: sentences, and each term with its meaning."""
    return [
        MEASURED + ".",
        *map(list, ORIGINS.items()),
        "Axes:",
        *map(list, LETTERS.items()),
    ]


def render(data: Mapping[str, Any], title: str) -> str:
    """The page with a title and the data in it; its policy allows no more."""
    style = "\n".join(read(name) for name in STYLES)
    script = bundle(SCRIPTS)
    policy = (
        f"default-src 'none'; style-src '{digest(style)}'; "
        f"script-src '{digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    numbers = json.dumps(
        slim(dict(data)), allow_nan=False, separators=(",", ":"), ensure_ascii=False
    )
    for character in "<>&\u2028\u2029":  # nothing in the data can end its element
        numbers = numbers.replace(character, f"\\u{ord(character):04x}")
    parts = {
        "MARK": MARK,
        "POLICY": policy,
        "TITLE": html.escape(title),
        "STYLE": style,
        "DATA": numbers.encode(errors="backslashreplace").decode(),
        "SCRIPT": script,
    }
    # At once: what is put in may look like a gap itself.
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda gap: parts[gap[1]], read("page.html"))


def read(name: str) -> str:
    """One of the files that the page is put together from."""
    return (WEB / name).read_text(encoding="utf-8").strip("\n")


def bundle(names: tuple[str, ...]) -> str:
    """Modules as one script, each in a function that returns what it exports.

    An import is one statement that ends with the other file's name, an export stands
    before what it exports, and comments do not share lines with strings like theirs.
    """
    comment, exported = re.compile(r"/\*.*?\*/\n?", re.DOTALL), r"^export (\w+ (\w+))"
    imported = re.compile(r'^import (\{[^}]*\}) from "\./(\w+)\.js";', re.MULTILINE)
    parts = ['"use strict";']
    for name in names:
        text = comment.sub("", read(name))
        given = ", ".join(name for _, name in re.findall(exported, text, re.MULTILINE))
        text = re.sub(
            exported, r"\1", imported.sub(r"const \1 = $\2;", text), flags=re.M
        )
        name = name.removesuffix(".js")
        parts.append(f"const ${name} = (() => {{\n{text}\nreturn {{{given}}};\n}})();")
    return "\n".join(parts)


def digest(text: str) -> str:
    """The source expression of a content security policy for an inline element."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
