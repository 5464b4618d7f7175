"""What is measured on: the device, and a line that names the machine."""

import platform

from steps.errors import UserError
from steps.pytorch import torch
from steps.words import count


def check_device(device: str, needed: int = 1) -> None:
    """Raises UserError where there are not so many such devices."""
    found = torch.cuda.device_count() if device == "cuda" else needed
    if found < needed:
        raise UserError(
            f"--device: this torch finds {count(found, 'CUDA device')}; {needed} needed"
        )


def named(device: str) -> str:
    """The machine in one line, for a reader who compares figures."""
    if device == "cuda":
        where = torch.cuda.get_device_name()
    else:
        kind = torch.backends.cpu.get_cpu_capability()
        threads = count(torch.get_num_threads(), "thread")
        where = f"{platform.machine()} CPU ({kind}), {threads}"
    system = f"{platform.system()}, Python {platform.python_version()}"
    return f"torch {torch.__version__}, {where}, {system}"
