"""Logs of a rollout, in the rollout worker: a line per turn, and a relay of log records to the run's process.

    [Turn 2] problem_17: Compile:✓ Correct:✗ Runtime:3.12ms Speedup:1.20x Reward:0.100

Turns are counted from 1. A dash stands for an unknown value; `(roofline)` marks an estimate.
"""

import logging
import math
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from logging import LogRecord
from logging.handlers import QueueHandler
from typing import Any

from kernels_eval.verdict import Verdict
from tasks.models.chat_templates import Message
from tasks.trajectories.returns import turn_returns
from tasks.trajectories.schema import Trajectory, Turn


def turn_line(problem_id: str, turn: Turn) -> str:
    """Return a turn's line; turns are counted from 1."""
    verdict = turn.verdict
    return (
        f"[Turn {turn.turn_index + 1}] {problem_id}: Compile:{_mark(verdict.compiled)} "
        f"Correct:{_mark(verdict.correct)} Runtime:{_runtime(verdict.candidate_ms)} "
        f"Speedup:{_speedup(verdict)} Reward:{_number(turn.reward, 3)}"
    )


def trajectory_summary(trajectory: Trajectory, gamma: float) -> str:
    """Return the summary of a finished episode, several lines."""
    rewards = trajectory.rewards
    final = trajectory.turns[-1].verdict
    return "\n".join(
        [
            f"=== Final Trajectory Summary for {trajectory.problem_id} ===",
            f"Total turns: {len(rewards)} ({trajectory.termination.value})",
            f"Turn rewards: [{', '.join(_number(reward, 3) for reward in rewards)}]",
            f"Aggregated return: {_number(turn_returns(rewards, gamma)[0], 4)}",
            f"Final correctness: {_mark(final.correct)}",
            f"Final speedup: {_speedup(final)}",
        ]
    )


def _mark(value: bool) -> str:
    return "✓" if value else "✗"


def _runtime(milliseconds: float | None) -> str:
    """Return two decimals, or three significant digits below 0.1 ms; never an exponent."""
    if milliseconds is None:
        return "-"
    if not 0 < milliseconds < 0.1:
        return f"{milliseconds:.2f}ms"
    return f"{milliseconds:.{2 - math.floor(math.log10(milliseconds))}f}ms"


def _number(value: float | None, decimals: int) -> str:
    return "-" if value is None else f"{value:.{decimals}f}"


def _speedup(verdict: Verdict) -> str:
    if verdict.speedup is None:
        return "-"
    mark = "" if verdict.timing_source is None or verdict.timing_source.value == "gpu" else " (roofline)"
    return f"{verdict.speedup:.2f}x{mark}"


TURN_LINES = "kernelmill.rollout.turns"
"""Name of the logger of the lines; silent unless its level is set to INFO (a run has a thousand turns and more)."""


class LineLogger:
    """Logs a line per turn and a summary per trajectory (tasks.rollout.episode.EpisodeLog)."""

    def log_turn(self, problem_id: str, messages: Sequence[Message], turn: Turn, details: dict[str, Any]) -> None:
        """Log the turn's line."""
        logging.getLogger(TURN_LINES).info(turn_line(problem_id, turn))

    def log_trajectory(self, trajectory: Trajectory, messages: Sequence[Message], gamma: float) -> None:
        """Log the summary."""
        logging.getLogger(TURN_LINES).info(trajectory_summary(trajectory, gamma))


_MOST = 10_000
"""Records kept between two reports; the oldest are dropped."""


class LogRelay(QueueHandler):
    """Collects log records, made ready to be pickled, until `take`."""

    def __init__(self) -> None:
        self._records: deque[LogRecord] = deque(maxlen=_MOST)
        super().__init__(self._records)  # pyright: ignore[reportArgumentType]  # only `enqueue` uses it
        self.setLevel(logging.INFO)

    def enqueue(self, record: LogRecord) -> None:
        """Keep a record."""
        self._records.append(record)

    def take(self) -> tuple[LogRecord, ...]:
        """Return the records since the last call."""
        return tuple(self._records.popleft() for _ in range(len(self._records)))


@contextmanager
def relay_logs() -> Generator[LogRelay]:
    """Collect the project's log records while the block runs."""
    handler, source = LogRelay(), logging.getLogger("kernelmill")
    source.addHandler(handler)
    try:
        yield handler
    finally:
        source.removeHandler(handler)
