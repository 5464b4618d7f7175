"""The walk, one file a step; `python -m steps.step15` shows one of them.

In a notebook: `from steps import show; show(15)`.
"""

from typing import Any


def show(step: int, **flags: Any) -> Any:
    """A step as a notebook shows it: statements, shapes, tables, checks.

    step: its number. flags: those of the command line, as in
    `show(15, heads=3, follow="river")`.

    Raises ValueError for a step that there is not and for flags that cannot be.
    """
    from steps.walk.command import asked  # torch is imported when a step is shown

    return asked(step, flags)
