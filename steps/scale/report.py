"""What step 24's measurements print, in the form of the walk's own blocks."""

from collections.abc import Iterable

from steps.compare import Outcome
from steps.layout import Table, table, wrap
from steps.walk.text import checked


def say(text: str = "") -> None:
    """Print a paragraph."""
    print("\n".join(wrap(text)))


def show(note: Table) -> None:
    """Print a table between empty lines."""
    print("\n" + "\n".join(line.rstrip() for line in table(note)) + "\n")


def tell(checks: Iterable[tuple[str, Outcome]]) -> int:
    """Print checks and what they found; 1 when one failed, else 0."""
    print("Checks")
    code = 0
    for claim, outcome in checks:
        print("\n".join(checked(claim, outcome.holds, outcome.detail)))
        code = code if outcome else 1
    return code
