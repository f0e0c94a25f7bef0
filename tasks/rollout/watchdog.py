"""Watchdog: records what each sample waits for, and logs samples that wait long.

It only observes. The limits are enforced where the waiting happens (`episode_loop` for the engine, `judge_client` for
the judge), so no sample waits for ever even if nobody reads the log.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

logger = logging.getLogger("kernelmill.rollout")
_NAMED = 5
"""Samples that one line names; more are counted."""


class Phase(StrEnum):
    """Phase that a sample waits for."""

    GENERATION = "generation"
    """The engine's response, its queue included."""
    JUDGEMENT = "judgement"
    """The judge's verdict, its queue included."""


@dataclass(slots=True)
class Waiting:
    """A waiting sample."""

    name: str
    """Trajectory and turn."""
    phase: Phase
    since: float
    named_at: float

    def describe(self, now: float) -> str:
        """Return e.g. `train-0001-p3-002 turn 2: judgement for 130 s`."""
        return f"{self.name}: {self.phase.value} for {now - self.since:.0f} s"


class Watchdog:
    """Watches the samples of one rollout; `clock` in seconds."""

    def __init__(self, patience_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience_s = patience_s
        self._clock = clock
        self._waiting: dict[tuple[str, Phase], Waiting] = {}

    def begins(self, name: str, phase: Phase) -> None:
        """Start the wait of a sample's turn."""
        now = self._clock()
        self._waiting[name, phase] = Waiting(name, phase, since=now, named_at=now)

    def ends(self, name: str, phase: Phase) -> None:
        """End the wait; no effect if there was none."""
        self._waiting.pop((name, phase), None)

    @contextmanager
    def waiting(self, name: str, phase: Phase) -> Generator[None]:
        """Watch while the block runs."""
        self.begins(name, phase)
        try:
            yield
        finally:
            self.ends(name, phase)

    def overdue(self) -> list[Waiting]:
        """Return samples that have waited longer than the limit since their start or last report, longest first."""
        now = self._clock()
        found = [waiting for waiting in self._waiting.values() if now - waiting.named_at >= self._patience_s]
        return sorted(found, key=lambda waiting: waiting.since)

    def name_overdue(self) -> None:
        """Log one line with all overdue samples."""
        overdue, now = self.overdue(), self._clock()
        for waiting in overdue:
            waiting.named_at = now
        if overdue:
            more = f" (and {len(overdue) - _NAMED} more)" if len(overdue) > _NAMED else ""
            logger.warning("still waiting: %s%s", "; ".join(each.describe(now) for each in overdue[:_NAMED]), more)

    async def watch(self) -> None:
        """Name overdue samples until cancelled."""
        while True:
            await asyncio.sleep(self._patience_s / 4)
            self.name_overdue()
