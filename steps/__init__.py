"""The walk, one file a step; `python -m steps.step15` shows one of them.

In a notebook: `from steps import show; show(15)`.
"""

import os
import sys
from typing import Any


def show(step: int, **flags: Any) -> Any:
    """A step as a notebook shows it: statements, shapes, tables, checks.

    step: its number. flags: those of the command line, as in
    `show(15, heads=3, follow="river")`.

    Raises ValueError for a step that there is not and for flags that cannot be.
    """
    from steps.walk.command import asked  # torch is imported when a step is shown

    return asked(step, flags)


def _interrupted(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Ctrl-C while the program is still being loaded: no traceback, exit 130."""
    if issubclass(kind, KeyboardInterrupt):
        os._exit(130)  # nothing has been printed yet
    sys.__excepthook__(kind, error, trace)


if os.path.basename(sys.argv[0]) in ("-m", "gptversion.py"):  # not in a notebook
    sys.excepthook = _interrupted
