"""GPU of this machine: detection without torch, its facts, and the lock that workers hold while one of them times.

`gpu_name` and `resolve_device` run in the judge's process, which never imports torch; the rest runs in GPU workers.
"""

import fcntl
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kernels_eval.cost.roofline import HARDWARE
from kernels_eval.errors import InputError
from kernels_eval.gpu.timing_statistics import MemoryRates

_QUERY = (
    "import json, torch\n"
    "found = torch.cuda.is_available()\n"
    "print(json.dumps(torch.cuda.get_device_name(0) if found else None))"
)
_QUERY_S = 120
_DEVICE_FILES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")
"""Without any of these torch need not be asked."""
_UNKNOWN_BANDWIDTH = 8e12
_UNKNOWN_FLOPS = 5e15


@cache
def gpu_name() -> str | None:
    """Return the name of the first NVIDIA GPU that torch sees, or None."""
    if not any(Path(path).exists() for path in _DEVICE_FILES):
        return None
    asked = subprocess.run([sys.executable, "-c", _QUERY], capture_output=True, text=True, timeout=_QUERY_S)
    if asked.returncode:
        return None
    name: str | None = json.loads(asked.stdout.strip().splitlines()[-1])
    return name


def resolve_device(wanted: str) -> str:
    """Return `cpu` or `cuda` for `auto`, `cpu` or `cuda`; raises InputError if a GPU is asked for and none is found."""
    if wanted == "cpu":
        return "cpu"
    if gpu_name() is not None:
        return "cuda"
    if wanted == "cuda":
        raise InputError("judge.device: expected an NVIDIA GPU that torch sees, found none; use `cpu` or `auto`")
    return "cpu"


@dataclass(frozen=True)
class DeviceFacts:
    """Name and peak rates of one GPU."""

    name: str
    rates: MemoryRates


def device_facts() -> DeviceFacts:
    """Ask the device. An unknown rate is taken above any device's: lower bounds on times then only shrink."""
    import torch  # here, since the judge's process imports this module

    properties: Any = torch.cuda.get_device_properties(0)
    clock_khz = float(getattr(properties, "memory_clock_rate", 0) or 0)
    bus_bits = float(getattr(properties, "memory_bus_width", 0) or 0)
    bandwidth = 2e3 * clock_khz * bus_bits / 8 or _UNKNOWN_BANDWIDTH
    known = [hardware for key, hardware in HARDWARE.items() if key in properties.name.lower()]
    flops = known[0].half_flops if known else _UNKNOWN_FLOPS
    return DeviceFacts(
        name=str(properties.name),
        rates=MemoryRates(bandwidth, float(getattr(properties, "L2_cache_size", 0) or 0), flops),
    )


class DeviceLock:
    """Exclusive lock among the workers of this machine, over a file: one candidate at a time is timed on a device.

    The system releases it if its holder dies.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def __enter__(self) -> None:
        """Wait for the device."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        """Release the device."""
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
