"""The lines of a rollout for people: one a turn, a summary a trajectory.

    [Turn 2] problem_17: Compile:✓ Correct:✗ Runtime:3.12ms Speedup:1.20x Reward:0.100

Turns are counted from 1. A dash stands for what is not known; `(roofline)` marks an estimate.
"""

import math

from kernels_eval.verdict import Verdict
from tasks.trajectories.returns import turn_returns
from tasks.trajectories.schema import Trajectory, Turn


def turn_line(problem_id: str, turn: Turn) -> str:
    """Return a turn's line; turns are counted from 1."""
    verdict = turn.verdict
    return (
        f"[Turn {turn.turn_index + 1}] {problem_id}: Compile:{_mark(verdict.compiled)} Correct:{_mark(verdict.correct)} "
        f"Runtime:{_runtime(verdict.candidate_ms)} Speedup:{_speedup(verdict)} Reward:{_number(turn.reward, 3)}"
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
    """Two decimals, as many as it takes for three digits below that; never an exponent."""
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
