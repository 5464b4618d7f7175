"""The flags that only step 24 has: --time, --processes and --weights."""

import argparse
from typing import Any

from steps.commandline import Parser, whole
from steps.errors import UserError


def add_flags(parser: Parser, form: Any) -> None:
    """Step 24's own flags, beside those that every step takes; forms exclude others."""
    form.add_argument(
        "--time", action="store_true", help="measure time and memory, here"
    )
    form.add_argument(
        "--processes",
        type=whole(1, 4096),
        metavar="N",
        help="spread the heads over N processes",
    )
    form.add_argument(
        "--weights",
        metavar="FILE",
        help="run a layer of a GPT-2 checkpoint (safetensors)",
    )
    parser.add_argument(
        "--layer", type=whole(0, 10**6), metavar="N", help="of FILE (default: 0)"
    )
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), help="where to run (default: cpu)"
    )


def run(flags: argparse.Namespace, values: dict[str, Any]) -> int | None:
    """Do what the flags ask; None when they ask for the step's block.

    values: the walk's settings. Raises UserError for flags that do not go together.
    """
    if flags.layer is not None and flags.weights is None:
        raise UserError("--layer: belongs to --weights FILE")
    if not (flags.time or flags.processes or flags.weights is not None):
        if flags.device is not None:
            raise UserError("--device: belongs to --time, --processes or --weights")
        return None
    from steps import tokens

    token_ids, device = tokens.encode(values["text"]), flags.device or "cpu"
    if flags.processes:
        from steps.scale import processes

        return processes.run(flags.processes, token_ids, values["seed"], device)
    if flags.weights is not None:
        from steps.scale import weights

        return weights.run(flags.weights, flags.layer or 0, values, token_ids, device)
    from steps.scale import timing

    return timing.run(values["seed"], device)
