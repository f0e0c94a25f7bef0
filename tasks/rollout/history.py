"""History of an episode: its judged turns, the messages that they make, and the reason it ends."""

from collections.abc import Sequence

from kernels_eval.problem import Problem
from kernels_eval.verdict import Verdict
from tasks.models.chat_templates import Message
from tasks.rollout.config import EpisodeConfig
from tasks.rollout.episode_tasks import episode_task
from tasks.rollout.prompts import HistoryTurn, prompt_messages
from tasks.trajectories.schema import Termination


class History:
    """Judged turns on one problem, oldest first."""

    def __init__(self, problem: Problem, episode: EpisodeConfig, backend: str) -> None:
        self.turns: list[HistoryTurn] = []
        self._problem = problem
        self._episode = episode
        self._backend = backend
        self._task = episode_task(episode.task)

    def messages(self, turns: Sequence[HistoryTurn] | None = None) -> list[Message]:
        """Return the next prompt's messages, after all turns or after those given."""
        asked = self.turns if turns is None else turns
        return prompt_messages(self._problem.source, asked, self._episode, self._backend)

    def add(
        self, response_text: str, kernel_source: str | None, verdict: Verdict, score: float | None
    ) -> Termination | None:
        """Add a judged turn; returns the reason the episode ends with it, or None.

        `score`: reward of the verdict alone, which decides; None if the machine failed: the turn is not added then.
        """
        if score is None:
            return Termination.INFRASTRUCTURE_ERROR
        self.turns.append(
            HistoryTurn(response_text=response_text, kernel_source=kernel_source, verdict=verdict, reward=score)
        )
        return self._task.termination(self.turns, self._problem.level, self._episode)
