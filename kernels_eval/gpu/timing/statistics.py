"""Statistics of device time: what rounds agree on. Pure arithmetic."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

FASTEST = 3
"""Rounds that have to agree."""


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


def is_settled(candidate: Sequence[float], reference: Sequence[float], precision: float) -> bool:
    """True if the fastest rounds of both agree within `precision`."""
    return estimate(candidate).spread <= precision and estimate(reference).spread <= precision
