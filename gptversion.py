"""Multi-head attention, one shape at a time: every step of the walk, in order.

python gptversion.py             the whole walk
python gptversion.py --list      the steps and the article headings they belong to
python -m steps.step15           one step
"""

from steps.walk.command import main

if __name__ == "__main__":
    main()
