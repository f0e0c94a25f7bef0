"""Watchdog: records what each sample waits for, and logs samples that wait long.

It only observes. The limits are enforced where the waiting happens (`episode_loop` for the engine, `judge_client` for
the judge), so no sample waits for ever even if nobody reads the log.
"""

import asyncio
import logging
import time
from collections.abc import Generator
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
class _Wait:
    since: float
    named_at: float


class Watchdog:
    """Watches the samples of one rollout."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._waits: dict[tuple[str, Phase], _Wait] = {}

    def begins(self, name: str, phase: Phase) -> None:
        """Start the wait of a sample's turn, e.g. `train-0001-p3-002 turn 2`."""
        now = time.monotonic()
        self._waits[name, phase] = _Wait(now, now)

    def ends(self, name: str, phase: Phase) -> None:
        """End the wait; no effect if there was none."""
        self._waits.pop((name, phase), None)

    @contextmanager
    def waiting(self, name: str, phase: Phase) -> Generator[None]:
        """Watch while the block runs."""
        self.begins(name, phase)
        try:
            yield
        finally:
            self.ends(name, phase)

    def name_overdue(self) -> None:
        """Log one line with the samples that have waited too long since their start or last report, longest first."""
        now = time.monotonic()
        waits = sorted(self._waits.items(), key=lambda entry: entry[1].since)
        overdue: list[str] = []
        for (name, phase), wait in waits:
            if now - wait.named_at >= self._patience_s:
                wait.named_at = now
                overdue.append(f"{name}: {phase.value} for {now - wait.since:.0f} s")
        if overdue:
            more = f" (and {len(overdue) - _NAMED} more)" if len(overdue) > _NAMED else ""
            logger.warning("still waiting: %s%s", "; ".join(overdue[:_NAMED]), more)

    async def watch(self) -> None:
        """Name overdue samples until cancelled."""
        while True:
            await asyncio.sleep(self._patience_s / 4)
            self.name_overdue()
