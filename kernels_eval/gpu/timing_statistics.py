"""Statistics of device time: what rounds agree on, and lower bounds. Pure arithmetic."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

FASTEST = 3
"""Rounds that have to agree."""
FLOOR_LATENCY_S = 0.8e-6
"""Shortest launch."""


@dataclass(frozen=True)
class Estimate:
    """Time of the rounds that nothing disturbed."""

    seconds: float
    """Median of the three fastest rounds."""
    spread: float
    """Half of their range relative to it."""
    samples: int
    """All rounds."""


def estimate(samples: Sequence[float]) -> Estimate:
    """Return the time on which the three fastest rounds agree.

    What disturbs a round, such as the work of another process on the device, makes it longer, never shorter: fast
    rounds say more than the median of all (Chen and Revels, Robust benchmarking in noisy environments, 2016).
    Three, so that one faulty clock reading is not believed.
    """
    fastest = sorted(samples)[:FASTEST]
    seconds = median(fastest)
    spread = (fastest[-1] - fastest[0]) / 2 / seconds if seconds else math.inf
    return Estimate(seconds, spread, len(samples))


def floor_s(read_bytes: float, written_bytes: float, flops: float, memory: "MemoryRates") -> float:
    """Return a time that no honest kernel beats: half of the least traffic at rates beyond the data sheet's.

    Half: a kernel may skip inputs that the result does not depend on. Bytes that fit into the L2 cache need not reach
    DRAM within the call.
    """
    moved = (read_bytes + written_bytes) / 2
    beyond_cache = max(0.0, moved - memory.cache_bytes)
    return FLOOR_LATENCY_S + max(
        beyond_cache / (1.1 * memory.dram_bytes_per_s),
        moved / (4 * memory.dram_bytes_per_s),
        flops / (2 * memory.peak_flops),
    )


def peak_s(moved_bytes: float, flops: float, memory: "MemoryRates") -> float:
    """Return the time for bytes and matrix products at the device's peak rates, whichever takes longer."""
    return max(moved_bytes / memory.dram_bytes_per_s, flops / memory.peak_flops)


@dataclass(frozen=True)
class MemoryRates:
    """Peak rates of a device."""

    dram_bytes_per_s: float
    cache_bytes: float
    peak_flops: float
    """Of the fastest unit for any 16-bit or 32-bit type."""


def is_settled(candidate: Sequence[float], reference: Sequence[float], precision: float) -> bool:
    """True if the fastest rounds of both agree within `precision`."""
    return estimate(candidate).spread <= precision and estimate(reference).spread <= precision
