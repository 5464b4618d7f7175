"""Multi-head attention, one shape at a time: every step of the walk, in order.

python gptversion.py                 the whole walk
python gptversion.py --steps 14-20   the steps of the article (21-23: of the second)
python gptversion.py --list          the steps and the article headings they belong to
python -m steps.step15               one step

Step 15 is steps/step15.py, and what is said of it and checked steps/claims/step15.py. A
step's parameters are filled, by name, with what earlier steps made. The comments with
axes, such as # (B, T, H*D), are held against the tensors, and printed.
"""

import os
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
if HERE not in sys.path:  # python -P, python -I and PYTHONSAFEPATH leave it out
    sys.path.insert(0, HERE)

from steps.command import main  # noqa: E402

if __name__ == "__main__":
    main()
