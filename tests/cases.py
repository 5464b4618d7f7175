"""The samples in attention_cases/: right modules, and patches of them.

`python tests/cases.py` lists their names; with a name, it prints that module, for the
debugger by hand. attention_cases/README.md has the format.
"""

import functools
import re
import sys
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "attention_cases"
HEADER = re.compile(r"# (\w+): ?(.*)")
FIELD = re.compile(r"(\w+): ?(.*)")

# What only another setting than plain use in eval or train mode shows: a report may
# tell it as a risk beside any verdict.
OTHER_SETTINGS = {"half", "meta", "divisible", "large"}


@dataclass(frozen=True)
class Sample:
    """One module: its text, what is known of it, and the text that would be right."""

    name: str
    source: str
    fields: dict[str, str]  # of the right module's header, then of the patch
    right: str
    lines: frozenset[int] = frozenset()  # of the fault, where a report may name it

    @property
    def faulty(self) -> bool:
        return "fault" in self.fields

    @property
    def fails(self) -> list[str]:
        """The checks that a fault fails."""
        return self.fields.get("fails", "eval").split()

    @property
    def risk_lines(self) -> set[int]:
        """The lines at which a report may speak of a risk."""
        told = self.fields.get("risk", "")
        return {line_of(self.source, text) for text in told.splitlines()}


def with_header_read(text: str) -> tuple[dict[str, str], str]:
    """A module's header fields, and its text with the header emptied, line by line."""
    fields: dict[str, str] = {}
    lines = text.splitlines()
    for number, line in enumerate(lines):
        match = HEADER.match(line)
        if not match:
            break
        add(fields, *match.groups())
        lines[number] = "#"
    return fields, "\n".join(lines) + "\n"


def add(fields: dict[str, str], key: str, value: str) -> None:
    """A field; one that is given again holds a line for each."""
    fields[key] = f"{fields[key]}\n{value}" if key in fields else value


def line_of(source: str, text: str) -> int:
    """The number of the one line with this text in it."""
    found = [n for n, line in enumerate(source.splitlines(), 1) if text in line]
    if len(found) != 1:
        raise ValueError(f"{text!r} is in {len(found)} lines")
    return found[0]


def patched(source: str, patch: list[str]) -> tuple[str, int]:
    """The source after a patch, and the first line that its first place changes."""
    lines, first, places = source.splitlines(), 0, []
    for rows in (text.split("\n") for text in "\n".join(patch).split("\n@@\n")):
        old = [row[1:] for row in rows if row[0] != "+"]
        new = [row[1:] for row in rows if row[0] != "-"]
        at = [n for n in range(len(lines)) if lines[n : n + len(old)] == old]
        if len(at) != 1:
            raise ValueError(f"{old} is {len(at)} times in the module")
        places.append((at[0], len(old), new))
        if len(places) == 1:
            first = at[0] + 1 + sum(row[0] == " " for row in rows)
    start = places[0][0]
    first += sum(len(new) - old for at, old, new in places if at < start)
    for at, old, new in sorted(places, reverse=True):
        lines[at : at + old] = new
    return "\n".join(lines) + "\n", first


def entry(block: str, right: Sample) -> Sample:
    """One entry of a patch file, made from its right module."""
    rows = block.splitlines()
    heads = [FIELD.match(row) for row in rows if row[0] not in " -+@"]
    patch = [row for row in rows if row[0] in " -+@"]
    own: dict[str, str] = {}
    for head in heads:
        if head is None:
            raise ValueError(f"no field: {block}")
        add(own, *head.groups())
    source, first = patched(right.source, patch)
    name = own.get("fault") or own["right"]
    fields = right.fields | own
    if "fault" not in own:
        return Sample(name, source, fields, source)
    told = own.get("line")
    lines = {first if told is None else line_of(source, told)}
    lines |= {line_of(source, text) for text in own.get("also", "").splitlines()}
    return Sample(name, source, fields, right.source, frozenset(lines))


@functools.cache
def samples() -> dict[str, Sample]:
    """Every sample by its name."""
    found: dict[str, Sample] = {}
    for path in sorted(FOLDER.glob("*.py")):
        fields, source = with_header_read(path.read_text())
        right = Sample(path.stem, source, fields, source)
        made = [right]
        patches = path.with_suffix(".txt")
        if patches.exists():
            for block in re.split(r"\n{2,}", patches.read_text().strip("\n")):
                try:
                    made.append(entry(block, right))
                except (ValueError, KeyError) as error:
                    raise ValueError(f"{patches}: {error}\n{block}") from error
        for sample in made:
            if sample.name in found:
                raise ValueError(f"two samples are named {sample.name}")
            found[sample.name] = sample
    return found


def right_samples() -> list[Sample]:
    return [sample for sample in samples().values() if not sample.faulty]


def faulty_samples() -> list[Sample]:
    return [sample for sample in samples().values() if sample.faulty]


if __name__ == "__main__":
    if len(sys.argv) == 1:
        print("\n".join(samples()))
    elif sys.argv[1] not in samples():
        sys.exit(f"tests/cases.py: no sample is named {sys.argv[1]!r}")
    else:
        print(samples()[sys.argv[1]].source, end="")
