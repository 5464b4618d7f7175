"""Found as `steps` only when a step file is run by its path, as an editor's Run button
does (`python steps/step15.py`): puts the real package in its own place."""

import importlib
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)
del sys.modules["steps"]
importlib.import_module("steps")
