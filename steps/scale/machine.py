"""What is measured on: the device, and a line that names the machine."""

import platform

from steps.errors import UserError
from steps.pytorch import torch


def check_device(device: str, count: int = 1) -> None:
    """Raises UserError where there are not `count` such devices."""
    found = torch.cuda.device_count() if device == "cuda" else count
    if found < count:
        raise UserError(
            f"--device: this torch finds {found} CUDA devices; {count} needed"
        )


def named(device: str) -> str:
    """The machine in one line, for a reader who compares figures."""
    if device == "cuda":
        where = torch.cuda.get_device_name()
    else:
        kind = torch.backends.cpu.get_cpu_capability()
        where = f"{platform.machine()} CPU ({kind}), {torch.get_num_threads()} threads"
    system = f"{platform.system()}, Python {platform.python_version()}"
    return f"torch {torch.__version__}, {where}, {system}"
