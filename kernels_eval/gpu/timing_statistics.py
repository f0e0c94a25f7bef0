"""Statistics of device time: medians with confidence intervals, and lower bounds. Pure arithmetic."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

_COVERAGE = 0.95
FLOOR_LATENCY_S = 0.8e-6
"""Shortest launch."""


@dataclass(frozen=True)
class Estimate:
    """A median with a 95 % confidence interval that assumes no distribution."""

    median: float
    low: float
    high: float
    samples: int

    @property
    def half_width(self) -> float:
        """Half the interval relative to the median."""
        return (self.high - self.low) / 2 / self.median if self.median else math.inf


def estimate(samples: Sequence[float]) -> Estimate:
    """Return the median and the two order statistics that enclose it with 95 % at least.

    Below six samples no pair does: then the interval is from the least to the largest.
    """
    ordered = sorted(samples)
    left_out = _left_out(len(ordered))
    return Estimate(median(ordered), ordered[left_out], ordered[-1 - left_out], len(ordered))


@lru_cache
def _left_out(count: int) -> int:
    """Return how many of the smallest and of the largest samples lie outside the narrowest interval of 95 %.

    The median lies below the k-th smallest sample with the probability that fewer than k of `count` fair coins show
    heads (David and Nagaraja, Order Statistics, section 7.1).
    """
    left_out, outcomes = 0, 1
    while left_out < (count - 1) // 2:
        outcomes += math.comb(count, left_out + 1)
        if 2 * outcomes / 2**count > 1 - _COVERAGE:
            break
        left_out += 1
    return left_out


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
    """True if both medians are known to the wanted relative half-width."""
    return estimate(candidate).half_width <= precision and estimate(reference).half_width <= precision
