"""Statistics of device time: medians with confidence intervals, agreement of two clocks, lower bounds. Pure arithmetic.

Device events, recorded in the candidate's process, measure each call. A host clock in the judge's worker brackets whole
rounds of calls between full device synchronisations. A round holds, beside the calls, work of known length (flushing
the L2 cache, a pause that hides the host's enqueueing, copying outputs out), which the judge has timed in a process
like the candidate's that had not loaded one yet. What remains must agree with the events.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

CLOCK_RATIO = 1.5
"""Ratio of host clock to device events beyond which a timing is refused."""
ROUND_LATENCY_S = 120e-6
"""Time of a message to the candidate's process and back, and of waking up on either side: once a round."""
FLOOR_LATENCY_S = 0.8e-6
"""Shortest launch by device events."""


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
    """Return the median and the two order statistics that enclose it with 95 % (normal approximation)."""
    ordered = sorted(samples)
    count = len(ordered)
    if count < 6:  # no pair of order statistics covers the median with 95 %
        return Estimate(median(ordered), ordered[0], ordered[-1], count)
    reach = 0.98 * math.sqrt(count)
    low = max(0, math.floor(count / 2 - reach) - 1)
    high = min(count - 1, math.ceil(count / 2 + reach))
    return Estimate(median(ordered), ordered[low], ordered[high], count)


def clock_disagreement(host_s: float, baseline_s: float, device_s: Sequence[float], slack_s: float) -> str | None:
    """Return how the clocks of one round disagree, or None.

    host_s: the judge's clock around the round; baseline_s: the same round without the calls;
    device_s: each call by device events; slack_s: latency of the host in one round.
    """
    claimed = sum(device_s)
    if any(not math.isfinite(value) or value <= 0 for value in device_s):
        return "a device event says that a call took no time"
    remaining = host_s - baseline_s - slack_s
    if remaining > CLOCK_RATIO * claimed:
        found = f"device events say {1e3 * claimed:.3f} ms for {len(device_s)} calls"
        return f"{found}, the judge's clock leaves {1e3 * remaining:.3f} ms"
    if host_s < (baseline_s + claimed) / CLOCK_RATIO:
        found = f"{len(device_s)} calls and what is timed with them took {1e3 * host_s:.3f} ms"
        return f"{found}, expected {1e3 * (baseline_s + claimed):.3f}"
    return None


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


@dataclass(frozen=True)
class MemoryRates:
    """Peak rates of a device."""

    dram_bytes_per_s: float
    cache_bytes: float
    peak_flops: float
    """Of the fastest unit for any 16-bit or 32-bit type."""


def pause_s(enqueue_s: float, flush_s: float) -> float:
    """Return the pause after the flush during which the host enqueues a call, before the device starts it."""
    return min(max(0.0, 1.5 * enqueue_s + 10e-6 - flush_s), 3e-3)


def is_settled(candidate: Sequence[float], reference: Sequence[float], precision: float) -> bool:
    """True if both medians are known to the wanted relative half-width."""
    return estimate(candidate).half_width <= precision and estimate(reference).half_width <= precision
