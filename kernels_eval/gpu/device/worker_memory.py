"""Device memory that torch takes in the judge's worker: within the worker's share, and not kept without need."""

import math

import torch

from kernels_eval.gpu.device import cuda_driver

KEPT_BYTES = 2 << 30


def release_unused_memory() -> None:
    """Give back memory that torch keeps in this process without need, if it is much."""
    if cuda_driver.DEVICE == "cuda" and torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > KEPT_BYTES:
        torch.cuda.empty_cache()


def keep_within(nbytes: int) -> None:
    """Have torch take at most so many bytes in this process: what it keeps beyond them is given back."""
    if cuda_driver.DEVICE == "cuda":
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, max(nbytes, 0) / total))
        if torch.cuda.memory_reserved() > nbytes:
            torch.cuda.empty_cache()


def available_bytes() -> float:
    """Return the bytes that this process can still take: within what `keep_within` allows, if it was called."""
    if cuda_driver.DEVICE != "cuda":
        return math.inf
    free, _ = torch.cuda.mem_get_info()
    unused = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    return min(free + unused, share_left())


def share_left() -> float:
    """Return what `keep_within` still allows this process, whatever others hold of the device: no candidate decides."""
    if cuda_driver.DEVICE != "cuda":
        return math.inf
    total = torch.cuda.get_device_properties(0).total_memory
    return torch.cuda.get_per_process_memory_fraction() * total - torch.cuda.memory_allocated()
