"""The walk, one file a step; `python -m steps.step15` shows one of them."""
