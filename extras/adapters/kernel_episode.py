"""A conversation about one problem, for trainers that generate: the next messages, and the end, after each answer.

    episode = KernelEpisode(problem, scorer)
    while episode.termination is None:
        await episode.answer_async(generate(episode.messages))
    episode.rewards, episode.returns, episode.reward

Messages, rewards and reasons to end are those of our own rollouts (tasks.rollout.history). A turn on
which the machine failed ends the episode; nothing is known of the episode as a whole then, and its reward is None.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from extras.adapters.scoring import Scored, Scorer
from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.problem import Problem
from tasks.agents.config import owner_of
from tasks.models.chat_templates import Message
from tasks.rollout.history import History
from tasks.trajectories.returns import turn_returns
from tasks.trajectories.schema import Termination

ChatMessage = dict[str, str]
"""`role` and `content`, as chat templates take them."""


@dataclass(frozen=True, slots=True)
class Step:
    """One answer and its consequence."""

    scored: Scored
    reply: ChatMessage | None
    """The user's next message, with the judge's feedback; None if the episode has ended."""
    termination: Termination | None


class KernelEpisode:
    """An episode under way."""

    def __init__(self, problem: Problem | str, scorer: Scorer) -> None:
        """Begin with the first prompt. Turn limit, reward, prompt and feedback are those of `scorer.episode`."""
        self.problem = Problem(problem_id="problem", source=problem) if isinstance(problem, str) else problem
        self.steps: list[Step] = []
        self._scorer = scorer
        self._history = History(self.problem, scorer.episode, scorer.backend)
        self.messages: list[ChatMessage] = chat_messages(self._history.messages())
        """The conversation so far, up to the next answer; a later one continues the earlier ones."""

    @property
    def termination(self) -> Termination | None:
        """Reason the episode ended; None while it goes on."""
        return self.steps[-1].termination if self.steps else None

    @property
    def role(self) -> str:
        """Role that answers next (tasks.agents.config)."""
        return self._history.role

    @property
    def agent(self) -> str:
        """Agent whose weights that role has."""
        return owner_of(self._scorer.episode.agents, self.role)

    @property
    def rewards(self) -> list[float | None]:
        """Reward of each turn; None for one on which the machine failed."""
        return [step.scored.reward for step in self.steps]

    @property
    def returns(self) -> list[float | None]:
        """Discounted return of each turn (tasks.trajectories.returns): for trainers that credit each turn."""
        return turn_returns(self.rewards, self._scorer.episode.gamma)

    @property
    def reward(self) -> float | None:
        """Reward of the best turn: for trainers with one reward for a conversation. None: mask the conversation."""
        known = self._known
        return max(known) if known and len(known) == len(self.steps) else None

    @property
    def gain(self) -> float:
        """Improvement of the last turn on the turns before it: for peers that add rewards up to that of the best turn.

        Raises InfrastructureError if the machine failed on a turn.
        """
        self.check_judged()
        last, before = self._known[-1], self._known[:-1]
        return max(last - max(before), 0.0) if before else last

    def check_judged(self) -> None:
        """Raise InfrastructureError if the machine failed on a turn: nothing is known of the episode then."""
        if len(self._known) < len(self.steps):
            raise InfrastructureError(f"not judged: {self.steps[-1].scored.verdict.error_message}")

    @property
    def _known(self) -> list[float]:
        return [reward for reward in self.rewards if reward is not None]

    async def answer_async(self, answer: str, tokens: int | None = None, truncated: bool = False) -> Step:
        """Judge the next answer. Raises InputError if the episode has ended."""
        self._check_open()
        kept = self._kept(answer, tokens)
        scored = kept or await self._scorer.score_async(self.problem, answer, tokens, truncated)
        return self._add(answer, scored)

    def answer(self, answer: str, tokens: int | None = None, truncated: bool = False) -> Step:
        """Judge the next answer, blocking. Raises InputError if the episode has ended."""
        self._check_open()
        return self._add(
            answer, self._kept(answer, tokens) or self._scorer.score(self.problem, answer, tokens, truncated)
        )

    def _check_open(self) -> None:
        if self.termination is not None:
            raise InputError(f"{self.problem.problem_id}: the episode has ended ({self.termination})")

    def _kept(self, answer: str, tokens: int | None) -> Scored | None:
        """Return the best kernel so far with its verdict if the agent stops with this answer, else None."""
        kept = self._history.kept_by(answer)
        return None if kept is None else self._scorer.rewarded(kept.verdict, kept.kernel_source, answer, tokens)

    def _add(self, answer: str, scored: Scored) -> Step:
        ended = self._history.add(answer, scored.kernel_source, scored.verdict, scored.score)
        self.messages = chat_messages(self._history.messages())
        step = Step(scored, self.messages[-1] if ended is None else None, ended)
        self.steps.append(step)
        return step


def chat_messages(messages: Sequence[Message]) -> list[ChatMessage]:
    """Return messages as chat templates take them."""
    return [{"role": message.role.value, "content": message.content} for message in messages]
