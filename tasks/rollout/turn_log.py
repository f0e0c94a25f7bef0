"""The log lines of a rollout: one a turn, a summary a trajectory."""

import logging

from kernels_eval.verdict import Verdict
from tasks.trajectories.returns import turn_returns
from tasks.trajectories.schema import Trajectory, Turn

logger = logging.getLogger("kernelmill.rollout")


def log_turn(problem_id: str, turn: Turn) -> None:
    """Log `[Turn 2] problem_17: Compile:✓ Correct:✗ Runtime:3.12ms Speedup:1.20x Reward:0.100`."""
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug(turn_line(problem_id, turn))


def log_trajectory(trajectory: Trajectory, gamma: float) -> None:
    """Log the summary of a finished episode."""
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug(trajectory_summary(trajectory, gamma))


def turn_line(problem_id: str, turn: Turn) -> str:
    """Return a turn's line; turns are counted from 1."""
    verdict = turn.verdict
    runtime = "-" if verdict.candidate_ms is None else f"{verdict.candidate_ms:.3g}ms"
    return (
        f"[Turn {turn.turn_index + 1}] {problem_id}: Compile:{_mark(verdict.compiled)} Correct:{_mark(verdict.correct)} "
        f"Runtime:{runtime} Speedup:{_speedup(verdict)} Reward:{_number(turn.reward, 3)}"
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


def _number(value: float | None, decimals: int) -> str:
    return "-" if value is None else f"{value:.{decimals}f}"


def _speedup(verdict: Verdict) -> str:
    if verdict.speedup is None:
        return "-"
    mark = "" if verdict.timing_source is None or verdict.timing_source.value == "gpu" else " (roofline)"
    return f"{verdict.speedup:.2f}x{mark}"
