"""History of an episode: its judged turns, the messages that they make, and the reason it ends."""

from collections.abc import Sequence

from kernels_eval.problem import Problem
from kernels_eval.verdict import Verdict
from tasks.agents.config import AgentConfig, author_of, with_solver
from tasks.models.chat_templates import Message
from tasks.rollout.agent_prompts import agent_messages, best_turn, stops
from tasks.rollout.config import EpisodeConfig
from tasks.rollout.episode_tasks import episode_task
from tasks.rollout.prompts import HistoryTurn
from tasks.trajectories.schema import Termination


class History:
    """Judged turns on one problem, oldest first."""

    def __init__(self, problem: Problem, episode: EpisodeConfig, backend: str) -> None:
        self.turns: list[HistoryTurn] = []
        self._problem = problem
        self._episode = episode
        self._backend = backend
        self._task = episode_task(episode.task)

    @property
    def role(self) -> str:
        """Role that writes the next turn."""
        return author_of(self._episode.agents, len(self.turns))

    @property
    def agent(self) -> AgentConfig:
        """Settings of that role."""
        return with_solver(self._episode.agents)[self.role]

    def kept_by(self, content: str) -> HistoryTurn | None:
        """Return the best turn so far if this answer says that it is good enough; None for any other answer."""
        return best_turn(self.turns) if self.turns and stops(content, self.agent) else None

    def messages(self, turns: Sequence[HistoryTurn] | None = None) -> list[Message]:
        """Return the next prompt's messages, after all turns or after those given."""
        asked = self.turns if turns is None else turns
        return agent_messages(self._problem.source, asked, self._episode, self._backend, self.agent)

    def add(
        self, response_text: str, kernel_source: str | None, verdict: Verdict, score: float | None
    ) -> Termination | None:
        """Add a judged turn; returns the reason the episode ends with it, or None.

        `score`: reward of the verdict alone, which decides; None if the machine failed: the turn is not added then.
        """
        if score is None:
            return Termination.INFRASTRUCTURE_ERROR
        stopped = self.kept_by(response_text) is not None
        self.turns.append(
            HistoryTurn(response_text=response_text, kernel_source=kernel_source, verdict=verdict, reward=score)
        )
        if stopped:
            return Termination.AGENT_STOPPED
        return self._task.termination(self.turns, self._problem.level, self._episode)
