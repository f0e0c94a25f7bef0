"""Who hears of turns and trajectories as they end: the console's lines, and JSON files."""

import logging
from collections.abc import Sequence

from tasks.models.messages import Message
from tasks.rollout.episode_plan import EpisodePlan
from tasks.rollout.turn_log import trajectory_summary, turn_line
from tasks.trajectories.json_logs import JsonLogs
from tasks.trajectories.schema import Trajectory, Turn

TURN_LINES = "kernelmill.rollout.turns"
"""Name of the logger of the lines; silent unless its level is set to INFO (a run has a thousand turns and more)."""


class LineLogger:
    """Logs a line a turn and a summary a trajectory."""

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
    """Has JSON files written."""

    def __init__(self, logs: JsonLogs, run_id: str, gamma: float) -> None:
        self._logs = logs
        self._run_id = run_id
        self._gamma = gamma

    def turn_ended(self, plan: EpisodePlan, messages: Sequence[Message], turn: Turn) -> None:
        """Have the turn's file written."""
        details = {
            "run_id": self._run_id,
            "iteration": plan.iteration,
            "trajectory_id": plan.trajectory_id,
            "sample_index": plan.sample_index,
            "level": plan.row.problem.level,
        }
        self._logs.log_turn(plan.row.problem.problem_id, messages, turn, details)

    def trajectory_ended(self, trajectory: Trajectory, messages: Sequence[Message]) -> None:
        """Have the trajectory's file written."""
        self._logs.log_trajectory(trajectory, messages, self._gamma)
