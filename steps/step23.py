"""Step 23: the first wrong shape

The debugger.
"""


def step():
    return None


if __name__ == "__main__":
    import sys

    if any(not a.startswith("-") for a in sys.argv[1:]):
        from steps.debugger.command import main

        raise SystemExit(main())
    from steps.walk.command import step as show

    show(__file__)
