"""Rotary positions: the score of two tokens depends on how far apart they are, alone.

Shown with one token, repeated: but for its place, it is the same everywhere.
"""

import math

from steps.debugger.arguments import plain
from steps.debugger.calls import ANGLES
from steps.debugger.case import Case
from steps.debugger.result import Diagnosis
from steps.debugger.run import Node, Run
from steps.debugger.settings.runs import off, pairs_of
from steps.debugger.stages import Label
from steps.pytorch import torch
from steps.walk.source import Place

FAR = 1e-3  # of the largest number: no table in float32 is so inexact
TURNING = ("cos", "sin", "polar", "view_as_complex")


def rotary(case: Case) -> Diagnosis | str | None:
    """Queries and keys that are turned by their positions."""
    if case.judgement is None or case.x.dim() != 3 or case.run.error is not None:
        return None
    if not case.judgement.heads.changed:
        return cancelled(case) if case.judgement.clean else None
    queries, keys = final(case, "queries"), final(case, "keys")
    if queries is None or keys is None or not turns(case, queries):
        return None
    repeated = case.x[:, :1].expand_as(case.x).contiguous()
    run = case.record(repeated)
    q, k = (heads_in(case, run, node) for node in (queries, keys))
    if q is None or k is None:
        return None
    scores = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).transpose(-2, -1)
    still_q, still_k = (off(t[:, :, :1].expand_as(t), t) < 1e-9 for t in (q, k))
    if still_q and still_k:
        return fault(
            case,
            queries,
            "has the same query and key at every place: what is turned is not counted "
            "by tokens",
            "angles that count another axis than the tokens'",
        )
    if by_distance(scores):
        return "one token repeated (scores by distance alone)"
    if still_k or still_q:
        role, node = ("keys", queries) if still_k else ("queries", keys)
        found = f"the {role} are the same at every place: they are not turned"
        return fault(case, node, found, f"{role} that are not turned")
    if by_distance(scores.flip(-1)):
        found = "scores depend on the sum of the places: the two are turned apart"
        return fault(case, keys, found, "keys turned backwards")
    lengths = q.norm(dim=-1)
    kept = off(lengths[..., :1].expand_as(lengths), lengths) < FAR
    return fault(
        case,
        keys if kept else queries,
        "tokens as far apart as others have other scores",
        "scores that depend on where the two tokens stand",
    )


def cancelled(case: Case) -> Diagnosis | None:
    """Queries and keys that are turned, to no effect at all.

    The output was found equal to that of heads without positions.
    """
    for node in case.run.nodes:
        if node in case.labels or node.entry.origin != "computed":
            continue
        held = [case.labels[n].stage.name for n in node.inputs if n in case.labels]
        if not any(name.startswith(("queries", "keys")) for name in held):
            continue
        if any(of_sines(maker) for _, maker in node.constants):
            return fault(
                case,
                node,
                "it has the same scores at every place, and the output is that of "
                "attention without positions: what is turned is not counted by tokens",
                "angles that count another axis than the tokens'",
            )
    return None


def of_sines(node: Node | None) -> bool:
    """Whether a table is made of sines or cosines."""
    if node is None:
        return False
    if node.entry.function in TURNING:
        return True
    return any(of_sines(maker) for _, maker in node.constants)


def fault(case: Case, node: Node, found: str, got: str) -> Diagnosis:
    file = case.file.path
    lines = node.calls[:1] or [node.line]
    place = Place(file, lines[0], lines[0], None, None)
    return case.file.fault(
        place if lines[0] != node.line else node,
        "positions",
        f"With rotary positions, scores depend on the distance of two tokens alone. "
        f"Run with one token repeated {case.T} times: {found}.",
        got,
        seen_at=node.line,
        node=node,
    )


def final(case: Case, role: str) -> Node | None:
    """The first operation that holds the queries or keys as the scores read them."""
    found = (
        node
        for node, label in case.labels.items()
        if label.stage.name.split(",")[0] == role
        and "as projected" not in label.stage.name
        and not label.index
    )
    return min(found, key=lambda node: node.index, default=None)


def turns(case: Case, queries: Node) -> bool:
    """Whether they are visibly turned: lengths kept, or by sines and linearly.

    Angles of ours may be in another order than the module wants: with these only kept
    lengths tell.
    """
    if case.judged.heads.changed == "rotated":
        return True
    if any(plain(name) in ANGLES for name in case.way.made_up):
        return False
    if not any(node.entry.function in TURNING for node in case.run.nodes):
        return False
    before = next(
        (
            n
            for n, lb in case.labels.items()
            if lb.stage.name == "queries, as projected"
        ),
        None,
    )
    return before is not None and linear(case, before, queries)


def linear(case: Case, before: Node, after: Node) -> bool:
    """Whether queries at one place are changed linearly: no position is added."""
    D = case.judged.heads.D
    generator = torch.Generator().manual_seed(13)
    rows: list[tuple[torch.Tensor, torch.Tensor]] = []
    for _ in range(math.ceil(2 * D / case.B)):
        x = torch.randn(case.x.shape, generator=generator, dtype=case.x.dtype)
        run = case.record(x)
        one, two = (heads_in(case, run, node) for node in (before, after))
        if one is None or two is None:
            return False
        rows.append((one, two))
    ones, twos = (torch.cat([row[i][:, 0, -1] for row in rows]) for i in (0, 1))
    turn = torch.linalg.lstsq(ones, twos).solution
    return off(ones @ turn, twos) < FAR


def heads_in(case: Case, run: Run, node: Node) -> torch.Tensor | None:
    """What an operation of the case holds in another run, as (B, heads, T, D)."""
    twin = next((other for one, other in pairs_of(case.run, run) if one is node), None)
    if twin is None:
        return None
    return by_head(twin.value.double(), case.labels[node], case)


def by_head(value: torch.Tensor, label: Label, case: Case) -> torch.Tensor | None:
    """A tensor with a label's axes as (B, heads, T, D)."""
    heads = case.judged.heads
    sizes = {"B": case.B, "T": case.T, "S": case.T, "D": heads.D, "1": 1}
    rest = math.prod(sizes[a] for a in label.order if a != "H")
    if rest == 0 or value.numel() % rest:
        return None
    sizes["H"] = value.numel() // rest
    letters = [a for a in label.order if a != "1"]
    if "H" not in letters and sizes["H"] == 1:
        letters.append("H")
    tokens = "T" if "T" in letters else "S"
    wanted = ["B", "H", tokens, "D"]
    if case.B == 1 and "B" not in letters:
        letters.append("B")
    if sorted(letters) != sorted(wanted):
        return None
    split = value.reshape([sizes[a] for a in letters])
    return split.permute([letters.index(a) for a in wanted])


def by_distance(scores: torch.Tensor) -> bool:
    """Whether scores (..., T, T) are the same all along each diagonal."""
    T = scores.shape[-1]
    top = float(scores.abs().max())
    for distance in range(-T + 1, T):
        along = scores.diagonal(distance, -2, -1)
        if float((along - along[..., :1]).abs().max()) > FAR * top:
            return False
    return True
