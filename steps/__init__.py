"""The walk, one file a step; `python -m steps.step15` shows one of them."""

import os
import sys
from typing import Any


def _interrupted(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Ctrl-C while the program is still being loaded: no traceback, exit 130."""
    if issubclass(kind, KeyboardInterrupt):
        os._exit(130)  # nothing has been printed yet
    sys.__excepthook__(kind, error, trace)


if os.path.basename(sys.argv[0]) in ("-m", "gptversion.py"):  # not in a notebook
    sys.excepthook = _interrupted
