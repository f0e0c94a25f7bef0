"""Statistics of device time: what rounds agree on, and lower bounds. Pure arithmetic."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

FASTEST = 3
"""Rounds that have to agree."""
FLOOR_LATENCY_S = 0.8e-6
"""Shortest launch."""

_OVERLAP_NOISE_S, _OVERLAP_NOISE = 5e-7, 0.08
"""Difference of a call alone from what is predicted of it that says nothing."""
_SPARED = 0.5
"""Share of the time to read inputs from the device's memory that they are read faster by from its cache, at most."""


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


def alone_s(call_s: float, reference_s: float, reference_serial_s: float, gated: bool = True) -> float:
    """Return the time that a call of a round is predicted to take alone.

    A call alone may find fresher inputs, or a device that has to begin; both show in the reference's times in a round
    and alone (`reference_s`, `reference_serial_s`). `gated`: else it has the host's time, of which inputs spare none.
    """
    share = min(1.0, reference_serial_s / reference_s) if gated else 1.0
    return call_s * share + max(0.0, reference_serial_s - reference_s)


def beside_candidate(quiet_s: float, alone_s: float | None, beside_s: float) -> tuple[float, float | None]:
    """Return the reference's time in a round and alone, both as beside a candidate.

    By its tensors' places a round may be shorter there (`beside_s`) than without one (`quiet_s`). A call alone, which
    is timed without one, then takes longer only as far as it did there. `alone_s`: None if it has no such time.
    """
    reference_s = min(quiet_s, beside_s)
    if alone_s is None:
        return reference_s, None
    return reference_s, min(alone_s, reference_s + max(0.0, alone_s - quiet_s))


def overlapped_s(
    call_s: float,
    serial_s: float,
    reference_s: float,
    reference_serial_s: float | None,
    gated: bool = True,
    has_side_streams: bool = False,
    read_s: float = math.inf,
) -> float:
    """Return the time of a call that overlapped with others in a round: what it takes longer alone than predicted.

    `reference_serial_s`: None for a reference that has no time alone; as long as in a round is predicted then.
    `has_side_streams`: calls can overlap, and each difference counts; else what differs by noise is 0. Fresh inputs
    spare such a call what they spare the reference, whose bytes are the same: half of `read_s` at most, in which the
    device's memory gives all of them. The cache takes its time, too.
    """
    alone = reference_serial_s or reference_s
    if has_side_streams:
        spared_s = min(max(0.0, reference_s - alone), _SPARED * read_s) if gated else 0.0
        return max(0.0, serial_s + spared_s - call_s - max(0.0, alone - reference_s))
    excess = serial_s - alone_s(call_s, reference_s, alone, gated)
    return excess if excess > max(_OVERLAP_NOISE_S, _OVERLAP_NOISE * call_s) else 0.0


def sol_score(call_s: float, baseline_s: float, roof_s: float) -> float | None:
    """Return how far a call has come from the baseline, 0.5, to the speed of light of the device, 1; slower is less.

    1 / (1 + (call - roof) / (baseline - roof)). None where the baseline is at the roof already: it says nothing then.
    """
    if not 0.0 <= roof_s < baseline_s:
        return None
    return 1.0 / (1.0 + max(0.0, call_s - roof_s) / (baseline_s - roof_s))


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
