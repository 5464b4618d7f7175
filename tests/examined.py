"""What the debugger answers about a source, in this process."""

import functools
import json
import tempfile
from pathlib import Path
from typing import Any


@functools.cache
def examined(source: str, **options: Any) -> dict[str, Any]:
    """The answer as `--json` gives it, and the "report" as a person reads it.

    options: those of examine_file.
    """
    from steps.debugger.examine import examine_file

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "my_attention.py")
        file.write_text(source)
        found = examine_file(str(file), **options)
        return json.loads(found.json()) | {"report": str(found)}
