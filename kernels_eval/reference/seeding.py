"""Seeds without the devices that are not there.

`torch.manual_seed` also leaves a note for each kind of device that has not been initialised (CUDA, XPU), with the caller's stack:
2 ms a call, and notes that nobody ever reads pile up in a process that judges for weeks.
"""

import torch


def install() -> None:
    """Have `torch.manual_seed` seed the CPU's generator alone, in this process and all that it forks. Not where there is a GPU."""
    torch.manual_seed = torch.random.manual_seed = _manual_seed


def _manual_seed(seed: int) -> torch.Generator:
    return torch.default_generator.manual_seed(int(seed))
