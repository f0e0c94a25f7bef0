"""Episode tasks: the turn limit, and the reason an episode ends, for one turn or many.

`rollout.episode.task` names a task here, or one of the user's. The turn limit depends on the problem's level and is
extended while the verdict improves. Everything here is a pure function of verdicts: they explain the length of a stored
episode.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernels_eval.errors import InputError
from kernels_eval.verdict import Verdict
from tasks.rollout.config import EPISODE_TASK, EpisodeConfig
from tasks.rollout.prompts import HistoryTurn
from tasks.trajectories.schema import Termination


@dataclass(frozen=True, slots=True)
class EpisodeTask:
    """Write a kernel, get the judge's feedback, write a better one."""

    turn_limit: Callable[[Sequence[Verdict], int, EpisodeConfig], int]
    """(verdicts so far, level of the problem, episode) → turns that the episode may have."""

    def termination(self, history: Sequence[HistoryTurn], level: int, episode: EpisodeConfig) -> Termination | None:
        """Return the reason the episode ends (success, else repeated failure, else the turn limit), or None."""
        last = history[-1]
        if last.verdict.correct and last.reward >= episode.success_reward:
            return Termination.SUCCESS
        recent = history[-episode.max_zero_turns :]
        if len(recent) == episode.max_zero_turns and all(turn.reward == 0 for turn in recent):
            return Termination.REPEATED_FAILURE
        limit = self.turn_limit([turn.verdict for turn in history], level, episode)
        return Termination.TURN_LIMIT if len(history) >= limit else None


def turn_limit(verdicts: Sequence[Verdict], level: int, episode: EpisodeConfig) -> int:
    """Return how many turns an episode that has had these verdicts may have; at most limit + extension."""
    limit = base_limit(level, episode)
    allowed = limit
    # Each turn from the limit on has to earn the next one.
    while allowed < limit + episode.horizon.extension and allowed <= len(verdicts) and improves(verdicts[:allowed]):
        allowed += 1
    return allowed


def base_limit(level: int, episode: EpisodeConfig) -> int:
    """Return the turn limit of a problem of this level, without extension."""
    limits = episode.horizon.level_turns
    return limits[min(max(level, 1), len(limits)) - 1] if limits else episode.max_turns


def improves(verdicts: Sequence[Verdict]) -> bool:
    """True if the last verdict is better than every one before it; a first one has to have compiled."""
    *earlier, last = (quality(verdict) for verdict in verdicts)
    return last > max(earlier, default=(0, 0.0))


def quality(verdict: Verdict) -> tuple[int, float]:
    """Return (0 nothing, 1 compiled, 2 correct; the speedup of a correct kernel): larger is better."""
    if verdict.correct:
        return 2, verdict.speedup or 0.0
    return (1, 0.0) if verdict.compiled and verdict.rejection_reason is None else (0, 0.0)


KERNELBENCH = EpisodeTask(turn_limit=lambda verdicts, level, episode: 1)
KERNELBENCH_MULTITURN = EpisodeTask(turn_limit=turn_limit)


def episode_task(name: str) -> EpisodeTask:
    """Return the task of this name, or of the user's own. Raises InputError if there is none."""
    try:
        return EPISODE_TASK.load(name)
    except InputError as error:
        raise InputError(f"rollout.episode.{error}") from error
