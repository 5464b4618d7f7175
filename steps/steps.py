"""For an editor's Run button, which runs a step by its path: `python steps/step15.py`.

Python then looks for the package `steps` in this folder instead of the one above, and
finds this file, which is called what it must be called to be found. It puts the real
package in its own place, and the step goes on as by `python -m steps.step15`.
"""

import importlib
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)
del sys.modules["steps"]
importlib.import_module("steps")
