"""Peak rates of a device, and lower bounds of a call's time that follow from them. Pure arithmetic."""

from dataclasses import dataclass

FLOOR_LATENCY_S = 0.8e-6
"""Shortest launch."""


@dataclass(frozen=True)
class MemoryRates:
    """Peak rates of a device."""

    dram_bytes_per_s: float
    cache_bytes: float
    peak_flops: float
    """Of the fastest unit for any 16-bit or 32-bit type."""


def floor_s(read_bytes: float, written_bytes: float, memory: MemoryRates) -> float:
    """Return a time that no honest kernel beats: half of the least traffic at rates beyond the data sheet's.

    Half: a kernel may skip inputs that the result does not depend on. Bytes that fit into the L2 cache need not reach
    DRAM within the call. The reference's arithmetic says nothing: a product with a diagonal or triangular matrix, or
    one of which the mean is asked for, needs a fraction of it.
    """
    moved = (read_bytes + written_bytes) / 2
    beyond_cache = max(0.0, moved - memory.cache_bytes)
    return FLOOR_LATENCY_S + max(
        beyond_cache / (1.1 * memory.dram_bytes_per_s),
        moved / (4 * memory.dram_bytes_per_s),
    )


def peak_s(moved_bytes: float, flops: float, memory: MemoryRates) -> float:
    """Return the time for bytes and matrix products at the device's peak rates, whichever takes longer."""
    return max(moved_bytes / memory.dram_bytes_per_s, flops / memory.peak_flops)
