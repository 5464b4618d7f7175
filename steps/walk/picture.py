"""The way from x_batch to the context vectors as the page draws it first.

It is read backwards from what the links and formulas of the gathered tensors say: the
last result is a product with the merged contexts, those are the weights' product with
the values, and the weights are a softmax of the queries' product with the keys. No name
of a tensor is looked at.
"""

from typing import Any

from steps.walk.gather import Gathered

LAST = 19  # the step that the way ends with


def picture(gathered: Gathered) -> dict[str, Any] | None:
    """Places of tensors, None where there is no such way.

    {"lanes": for queries, keys and values their tensors from packed to by head,
    "scores", "weights": [softmax, what dropout leaves], "contexts", "joined", "output"}
    """
    tensors = gathered.tensors
    products = [
        at
        for at, made in enumerate(tensors)
        if made["step"] == LAST and "wrong" not in made and is_dot(made)
    ]
    if not products:
        return None
    output = products[-1]
    joined = made_from(gathered, output, 0)
    contexts = chain(gathered, joined)[-1]
    if not is_dot(tensors[contexts]):
        return None
    thinned = made_from(gathered, contexts, 0)
    softmax: int | None = thinned
    while softmax is not None and how(tensors[softmax]).get("op") != "softmax":
        softmax = before(gathered, softmax)
    scores: int | None = softmax
    while scores is not None and not is_dot(tensors[scores]):
        scores = before(gathered, scores)
    if softmax is None or scores is None:
        return None
    ends = [made_from(gathered, scores, 0), made_from(gathered, scores, 1)]
    ends.append(made_from(gathered, contexts, 1))
    lanes = [
        [at for at in reversed(chain(gathered, end)) if not tensors[at]["link"]]
        for end in ends
    ]
    return {
        "lanes": lanes,
        "scores": scores,
        "weights": [softmax] + [thinned] * (thinned != softmax),
        "contexts": contexts,
        "joined": joined,
        "output": output,
    }


def how(made: dict[str, Any]) -> dict[str, Any]:
    """The formula of a tensor, or an empty one."""
    return made.get("formula", {})


def is_dot(made: dict[str, Any]) -> bool:
    """Whether a tensor is a product."""
    return how(made).get("op") == "dot"


def made_from(gathered: Gathered, at: int, which: int) -> int:
    """The place of one of the sources of a tensor's formula."""
    return how(gathered.tensors[at])["of"][which]


def moved_from(made: dict[str, Any]) -> int | None:
    """The place of the one tensor whose numbers a tensor has, if there is one."""
    links = made.get("links", [])
    return links[0]["i"] if len(links) == 1 and "same" in links[0] else None


def chain(gathered: Gathered, at: int) -> list[int]:
    """A tensor and those whose numbers it has, up to the one that computed them."""
    found = [at]
    while (source := moved_from(gathered.tensors[found[-1]])) is not None:
        found.append(source)
    return found


def before(gathered: Gathered, at: int) -> int | None:
    """What a tensor was made from, element by element."""
    made = gathered.tensors[at]
    if how(made):
        return how(made)["of"][0]
    return moved_from(made)
