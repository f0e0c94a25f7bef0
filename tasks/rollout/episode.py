"""One episode while it is played: what is asked next, what came of it, and when it ends.

The prompt of a later turn is the one before, continued, as long as the task says nothing else and the history stays within its
token budget. Past the budget the history is compressed, the prompt begins anew (`Prompt.extends_previous` is False), and
goes on from there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kernels_eval.errors import InfrastructureError
from tasks.models.chat import encode_prompt
from tasks.models.families import THINK_START
from tasks.models.messages import Message, Role
from tasks.rollout.compression import compressed
from tasks.rollout.config import EpisodeConfig, SamplingConfig
from tasks.rollout.engines.base import GenerationRequest
from tasks.rollout.episode_plan import EpisodePlan
from tasks.rollout.episode_tasks import EpisodeTask
from tasks.rollout.prompts import HistoryTurn
from tasks.rollout.turn_tokens import Prompt, first_prompt, next_prompt, opens_thought, rewritten_prompt
from tasks.trajectories.schema import Termination, Trajectory, Turn


@dataclass(frozen=True, slots=True)
class Setting:
    """What all episodes of a rollout share."""

    run_id: str
    policy_digest: str
    tokenizer: Any
    task: EpisodeTask
    episode: EpisodeConfig
    sampling: SamplingConfig
    backend: str


class EpisodeListener(Protocol):
    """Is told of what ended, at once, on the event loop: it must not block."""

    def turn_ended(self, plan: EpisodePlan, messages: Sequence[Message], turn: Turn) -> None:
        """A turn has its verdict; `messages` are what its prompt said."""
        ...

    def trajectory_ended(self, trajectory: Trajectory, messages: Sequence[Message]) -> None:
        """An episode has ended; `messages` are its last prompt and the answer to it."""
        ...


class PlayedEpisode:
    """An episode under way."""

    def __init__(self, plan: EpisodePlan, setting: Setting, context_tokens: int) -> None:
        self.plan = plan
        self.turns: list[Turn] = []
        self.termination: Termination | None = None
        self._setting = setting
        self._context_tokens = context_tokens
        self._history: list[HistoryTurn] = []
        self._whole = self._messages([])
        """What the task says for the whole history."""
        self.messages: Sequence[Message] = self._whole
        """What the prompt says: the same, or compressed."""
        self.prompt: Prompt = first_prompt(setting.tokenizer, self._whole, thinking=setting.episode.thinking)
        self._first_tokens = len(self.prompt.token_ids)

    @property
    def has_room(self) -> bool:
        """True where the prompt leaves room for a full response."""
        return len(self.prompt.token_ids) + self._setting.sampling.max_new_tokens <= self._context_tokens

    def request(self) -> GenerationRequest:
        """Return what is asked of the engine next."""
        index = len(self.turns)
        return GenerationRequest(
            name=f"{self.plan.trajectory_id} turn {index + 1}",
            prompt_token_ids=self.prompt.token_ids,
            seed=self.plan.turn_seed(index),
            routing_key=self.plan.trajectory_id,
        )

    def said(self, text: str) -> str:
        """Return what a response to the present prompt says as a message: with the reasoning's tag where the prompt opened it."""
        return f"{THINK_START}\n{text}" if opens_thought(self._setting.tokenizer, self.prompt) else text

    def add(self, turn: Turn, score: float | None) -> None:
        """Take a judged turn; afterwards the episode has ended or has its next prompt.

        `score`: what its verdict alone is worth, which is what the episode goes by; None for a fault.
        """
        self.turns.append(turn)
        if score is None:
            self.termination = Termination.INFRASTRUCTURE_ERROR
            return
        self._history.append(
            HistoryTurn(
                response_text=self.said(turn.response_text),
                kernel_source=turn.kernel_source,
                verdict=turn.verdict,
                reward=score,
            )
        )
        setting = self._setting
        level = self.plan.row.problem.level
        self.termination = setting.task.termination(self._history, level, setting.episode)
        if self.termination is None:
            self._ask_again(turn.response_token_ids)
            if not self.has_room:
                self.termination = Termination.CONTEXT_LIMIT

    def trajectory(self) -> Trajectory:
        """Return the finished episode."""
        plan, problem = self.plan, self.plan.row.problem
        if self.termination is None or not self.turns:
            raise InfrastructureError(f"{plan.trajectory_id}: the episode was lost on the way")
        return Trajectory(
            run_id=self._setting.run_id,
            iteration=plan.iteration,
            policy_digest=self._setting.policy_digest,
            problem_id=problem.problem_id,
            problem_digest=problem.digest,
            split=plan.row.split.value,
            level=problem.level,
            group_id=plan.group_id,
            trajectory_id=plan.trajectory_id,
            sample_index=plan.sample_index,
            turns=tuple(self.turns),
            termination=self.termination,
        )

    def answered_messages(self) -> list[Message]:
        """Return what the last turn's prompt said and the answer to it; of an episode that has ended."""
        return [*self.messages, Message(role=Role.ASSISTANT, content=self.said(self.turns[-1].response_text))]

    def _messages(self, history: Sequence[HistoryTurn]) -> list[Message]:
        setting = self._setting
        return setting.task.messages(self.plan.row.problem, history, setting.episode, setting.backend)

    def _ask_again(self, response_token_ids: Sequence[int]) -> None:
        setting = self._setting
        tokenizer, thinking = setting.tokenizer, setting.episode.thinking
        before, self._whole = self._whole, self._messages(self._history)
        if self._whole[:-2] == before:
            messages = [*self.messages, *self._whole[-2:]]
            prompt = next_prompt(tokenizer, self.prompt, response_token_ids, messages, thinking=thinking)
        else:
            messages = self._whole
            prompt = rewritten_prompt(tokenizer, messages, thinking=thinking)
        if setting.episode.history_tokens:
            room = self._context_tokens - setting.sampling.max_new_tokens
            longest = min(self._first_tokens + setting.episode.history_tokens, room)
            if len(prompt.token_ids) > longest:
                messages = self._messages(compressed(self._history, lambda rung: self._length(rung) <= longest))
                prompt = rewritten_prompt(tokenizer, messages, thinking=thinking)
        self.messages, self.prompt = messages, prompt

    def _length(self, history: Sequence[HistoryTurn]) -> int:
        """Return the tokens of the prompt that tells of this history."""
        return len(
            encode_prompt(self._setting.tokenizer, self._messages(history), thinking=self._setting.episode.thinking)
        )
