"""The debugger: the first line where a reader's own attention goes wrong.

from steps.debugger import diagnose
print(diagnose(MultiHeadAttention))  # a class, or an instance of one
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steps.debugger.result import Diagnosis

__all__ = ["diagnose"]

LONGEST = 86400  # seconds, a day: the most that a time limit may be


def diagnose(
    module: Any,
    causal: bool | None = None,
    timeout: float = 30,
    call: str | None = None,
    quick: bool = False,
) -> "Diagnosis":
    """Examine an attention module: an instance, left as it is, or a class.

    causal: whether a token may not look ahead; None finds out what the module claims.
    timeout: seconds after which the module is given up. Threads take turns: a second
    one waits until the first has its report.
    call: what forward is given where x alone is not enough, as text: "x, mask=None";
    x, B, T, torch and the names of the class's own module are known in it.
    quick: do not look for the change that mends a fault.

    Returns a `Diagnosis`; printing it gives the report for a person.
    """
    from steps.debugger.examine import examine_module

    return examine_module(module, causal, timeout, call, quick)
