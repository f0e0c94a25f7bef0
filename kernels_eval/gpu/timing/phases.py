"""Phases of a verdict on a GPU, with their seconds by the worker's clock. They are no part of the verdict."""

import contextlib
import time
from collections.abc import Generator
from enum import StrEnum


class Phase(StrEnum):
    """Phase of one verdict, in the order in which they come."""

    REFERENCE = "reference"
    """The problem's model is built, if it is not known, and run on one input set."""
    BEFORE = "before"
    """The candidate before has still to end: its process, and the context of that on the device."""
    READY = "ready"
    """The shared memory has its size, and a process has the job. No code of the candidate has run."""
    LOAD = "load"
    """The candidate's source is executed and its model built. The worker draws the first trials meanwhile, and
    runs reference and oracle on them."""
    COMPILE = "compile"
    """First round of trials: the compiler runs in the candidate's first call."""
    TRIALS = "trials"
    """All other trials."""
    PROFILE = "profile"
    """The profiled round, and the one in which the candidate's kernels do nothing."""
    ROUNDS = "rounds"
    """Timing."""
    END = "end"
    """The rest: the verdict is made, memory given back. The process ends after the reply: `before` of the next one."""


class Phases:
    """Stopwatch of one verdict."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        """By phase. What comes twice, since a measurement is repeated, counts twice."""
        self._since = time.perf_counter()

    def ended(self, phase: Phase) -> None:
        """Count the time since the phase before for one that has just ended."""
        now = time.perf_counter()
        self.seconds[phase.value] = self.seconds.get(phase.value, 0.0) + now - self._since
        self._since = now

    @contextlib.contextmanager
    def during(self, phase: Phase) -> Generator[None]:
        """Count the time since the phase before, to the end of the block, for one; also if the candidate fails."""
        try:
            yield
        finally:
            self.ended(phase)
