"""Logs of a rollout, in the rollout worker: console lines per turn, JSON files, and a relay of log records to the run's
process.

    [Turn 2] problem_17: Compile:✓ Correct:✗ Runtime:3.12ms Speedup:1.20x Reward:0.100

Turns are counted from 1. A dash stands for an unknown value; `(roofline)` marks an estimate.
"""

import logging
import math
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from kernels_eval.frozen import FrozenModel
from kernels_eval.verdict import Verdict
from tasks.models.chat_templates import Message
from tasks.rollout.episode import EpisodePlan
from tasks.trajectories.json_logs import JsonLogs
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
    rewards = [turn.reward for turn in trajectory.turns]
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
    """Logs a line per turn and a summary per trajectory."""

    def __init__(self, gamma: float) -> None:
        self._gamma = gamma
        self._logger = logging.getLogger(TURN_LINES)

    def turn_ended(self, plan: EpisodePlan, messages: Sequence[Message], turn: Turn) -> None:
        """Log the turn's line."""
        self._logger.info(turn_line(plan.row.problem.problem_id, turn))

    def trajectory_ended(self, trajectory: Trajectory, messages: Sequence[Message]) -> None:
        """Log the summary."""
        self._logger.info(trajectory_summary(trajectory, self._gamma))


class FileLogger:
    """Writes a JSON file per turn and per trajectory."""

    def __init__(self, logs: JsonLogs, run_id: str, gamma: float) -> None:
        self._logs = logs
        self._run_id = run_id
        self._gamma = gamma

    def turn_ended(self, plan: EpisodePlan, messages: Sequence[Message], turn: Turn) -> None:
        """Queue the turn's file for writing."""
        details = {
            "run_id": self._run_id,
            "iteration": plan.iteration,
            "trajectory_id": plan.trajectory_id,
            "sample_index": plan.sample_index,
            "level": plan.row.problem.level,
        }
        self._logs.log_turn(plan.row.problem.problem_id, messages, turn, details)

    def trajectory_ended(self, trajectory: Trajectory, messages: Sequence[Message]) -> None:
        """Queue the trajectory's file for writing."""
        self._logs.log_trajectory(trajectory, messages, self._gamma)


_SOURCE = "kernelmill"
_MOST = 10_000
"""Messages kept between two reports; the oldest are dropped."""


class LoggedMessage(FrozenModel):
    """One record of a logger."""

    logger: str
    level: int
    text: str

    def log(self) -> None:
        """Log it here."""
        logging.getLogger(self.logger).log(self.level, "%s", self.text)


class LogRelay(logging.Handler):
    """Collects log records until `take`."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._messages: deque[LoggedMessage] = deque(maxlen=_MOST)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        self._messages.append(LoggedMessage(logger=record.name, level=record.levelno, text=record.getMessage()))

    def take(self) -> tuple[LoggedMessage, ...]:
        """Return the records since the last call."""
        taken: list[LoggedMessage] = []
        while self._messages:
            taken.append(self._messages.popleft())
        return tuple(taken)


@contextmanager
def relay_logs() -> Generator[LogRelay]:
    """Collect the project's log records while the block runs."""
    handler, source = LogRelay(), logging.getLogger(_SOURCE)
    source.addHandler(handler)
    try:
        yield handler
    finally:
        source.removeHandler(handler)
