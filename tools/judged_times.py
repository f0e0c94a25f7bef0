"""Times of verdicts, and what made them: only times of one source, on one hardware, are compared."""

import math

from kernels_eval import Verdict

Clock = tuple[str, str]
"""Source of a time (GPU or estimate), and the hardware that it is of."""


def time_of(verdict: Verdict) -> float:
    """Return the kernel's time in ms; infinity unless it is right and was timed."""
    return verdict.candidate_ms if verdict.correct and verdict.candidate_ms else math.inf


def clock_of(verdict: Verdict) -> Clock:
    """Return what made the verdict's time."""
    return (verdict.timing_source.value if verdict.timing_source else "", verdict.hardware)
