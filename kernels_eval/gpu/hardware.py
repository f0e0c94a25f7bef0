"""What the judge has to know of the GPU that it runs on."""

from dataclasses import dataclass
from typing import Any

import torch

from kernels_eval.cost.roofline import HARDWARE
from kernels_eval.gpu.timing_statistics import MemoryRates

_UNKNOWN_BANDWIDTH = 8e12
_UNKNOWN_FLOPS = 5e15


@dataclass(frozen=True)
class DeviceFacts:
    """One GPU."""

    name: str
    architecture: str
    """As a compile target: `cuda:90`."""
    rates: MemoryRates


def device_facts() -> DeviceFacts:
    """Ask the device. What it does not say is taken to be more than any device has: floors of times are then lower."""
    properties: Any = torch.cuda.get_device_properties(0)
    clock_khz = float(getattr(properties, "memory_clock_rate", 0) or 0)
    bus_bits = float(getattr(properties, "memory_bus_width", 0) or 0)
    bandwidth = 2e3 * clock_khz * bus_bits / 8 or _UNKNOWN_BANDWIDTH
    known = [hardware for key, hardware in HARDWARE.items() if key in properties.name.lower()]
    flops = known[0].half_flops if known else _UNKNOWN_FLOPS
    return DeviceFacts(
        name=str(properties.name),
        architecture=f"cuda:{properties.major}{properties.minor}",
        rates=MemoryRates(bandwidth, float(getattr(properties, "L2_cache_size", 0) or 0), flops),
    )
