"""One episode: its plan (problem, sample, seeds), the next request, the turns so far, and the reason it ends.

The prompt of a later turn continues the previous one while the history stays within its token budget. Above it the
history is compressed: the prompt starts anew (`Prompt.extends_previous` is False), and later ones continue from there.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from kernels_eval.errors import InfrastructureError
from tasks.agents.config import Agents, owner_of, with_solver
from tasks.agents.team import member_of
from tasks.models.chat import encode_prompt
from tasks.models.chat_templates import THINK_START, Message, Role
from tasks.pipeline.references import CheckpointRef
from tasks.problems.row import ProblemRow, Split
from tasks.rollout.config import EpisodeConfig, SamplingConfig
from tasks.rollout.engines import GenerationRequest
from tasks.rollout.history import History
from tasks.rollout.prompts import HistoryTurn, compressed
from tasks.rollout.turn_tokens import Prompt, first_prompt, next_prompt, opens_thought, rewritten_prompt
from tasks.trajectories.schema import Termination, Trajectory, Turn

_SHELL = re.compile(r"""[\s<>&|;()$`"'\\*?!#~\[\]{}]""")
"""A problem's own id may hold them: pasted, a `>` would empty a file."""


@dataclass(frozen=True, slots=True)
class EpisodePlan:
    """Plan of one episode. The same arguments give the same plan: a repeated rollout has the same ids."""

    row: ProblemRow
    iteration: int
    sample_index: int
    seed: int

    @property
    def group_id(self) -> str:
        """Names the samples that share a first prompt; unique within a run."""
        return f"{self.row.split.value}-{self.iteration:04d}-{self.row.problem.problem_id}"

    @property
    def _name(self) -> str:
        return f"{self.group_id}-{self.sample_index:03d}"

    @property
    def trajectory_id(self) -> str:
        """Unique within a run, and without characters that a shell interprets: people paste it into commands."""
        return _SHELL.sub(".", self._name)

    def turn_seed(self, turn_index: int) -> int:
        """Return the seed of one turn's draws: 62 bits that no other turn of the run shares."""
        key = f"{self.seed}/{self._name}/{turn_index}"
        return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) >> 2

    def trajectory(
        self, run_id: str, policy_digest: str, turns: Sequence[Turn], termination: Termination
    ) -> Trajectory:
        """Return the trajectory of the episode as it was played."""
        problem = self.row.problem
        return Trajectory(
            run_id=run_id,
            iteration=self.iteration,
            policy_digest=policy_digest,
            problem_id=problem.problem_id,
            problem_digest=problem.digest,
            split=self.row.split.value,
            level=problem.level,
            group_id=self.group_id,
            trajectory_id=self.trajectory_id,
            sample_index=self.sample_index,
            turns=tuple(turns),
            termination=termination,
        )


def plan_episodes(
    rows: Sequence[ProblemRow],
    split: Split,
    problems: int,
    samples: int,
    iteration: int,
    seed: int,
    skip: int = 0,
    weights: Sequence[float] | None = None,
) -> list[EpisodePlan]:
    """Return the episodes of an iteration: `samples` of each of `problems` training problems, or of every held-out one.

    Training problems are drawn without replacement, by (seed, iteration) and `weights` alone, one weight a problem;
    None: all alike. `skip` of them were drawn before.
    """
    drawn = list(rows)
    if split is Split.TRAIN and problems < len(drawn):
        rng, count = np.random.default_rng([seed, iteration]), len(drawn)
        shares = None if weights is None else np.asarray(weights) / sum(weights)
        order = rng.permutation(count) if shares is None else rng.choice(count, count, replace=False, p=shares)
        drawn = [drawn[index] for index in order[skip : skip + problems]]
    return [EpisodePlan(row, iteration, sample, seed) for row in drawn for sample in range(samples)]


@dataclass(frozen=True, slots=True)
class RolloutContext:
    """Settings and names shared by all episodes of a rollout."""

    run_id: str
    policy_digest: str
    tokenizer: Any
    episode: EpisodeConfig
    sampling: SamplingConfig
    backend: str
    authors: Mapping[str, CheckpointRef] = field(default_factory=dict[str, CheckpointRef])
    """By role: the policy that writes its turns. Empty: not known, or one for all."""


def authors_in(policy: CheckpointRef, agents: Agents) -> dict[str, CheckpointRef]:
    """Return by role the policy that writes its turns: a team's member, or the single policy."""
    return {role: member_of(policy, owner_of(agents, role)) for role in with_solver(agents)}


class EpisodeLog(Protocol):
    """Log of turns and episodes as they end. Called on the event loop: must not block."""

    def log_turn(self, problem_id: str, messages: Sequence[Message], turn: Turn, details: dict[str, Any]) -> None:
        """Log a judged turn; `messages`: its prompt, `details`: the place of its episode in the run."""

    def log_trajectory(self, trajectory: Trajectory, messages: Sequence[Message], gamma: float) -> None:
        """Log a finished episode; `messages`: its last prompt and the answer, `gamma`: discount of its return."""


class Episode:
    """An episode under way."""

    def __init__(self, plan: EpisodePlan, context: RolloutContext, context_tokens: int) -> None:
        self.plan = plan
        self.turns: list[Turn] = []
        self.termination: Termination | None = None
        self._context = context
        self._context_tokens = context_tokens
        self._history = History(plan.row.problem, context.episode, context.backend)
        self._whole = self._history.messages()
        """The task's messages for the whole history."""
        self.messages: Sequence[Message] = self._whole
        """Messages of the prompt: the same, or compressed."""
        self.prompt: Prompt = first_prompt(context.tokenizer, self._whole, thinking=context.episode.thinking)
        self._first_tokens = len(self.prompt.token_ids)

    @property
    def has_room(self) -> bool:
        """True if the prompt leaves room for a full response."""
        return len(self.prompt.token_ids) + self._context.sampling.max_new_tokens <= self._context_tokens

    def request(self) -> GenerationRequest:
        """Return the next request to the engine."""
        index = len(self.turns)
        return GenerationRequest(
            name=f"{self.plan.trajectory_id} turn {index + 1}",
            prompt_token_ids=self.prompt.token_ids,
            seed=self.plan.turn_seed(index),
            agent=self.author["agent"],
            routing_key=self.plan.trajectory_id,
        )

    @property
    def author(self) -> dict[str, Any]:
        """Columns of the next turn that say who writes it."""
        role = self._history.role
        policy = self._context.authors.get(role)
        named: dict[str, Any] = {"role": role, "agent": owner_of(self._context.episode.agents, role)}
        if policy is None:
            return named
        digest = None if policy.digest == self._context.policy_digest else policy.digest
        return {**named, "policy_digest": digest, "weight_version": policy.weight_version}

    def kept_by(self, content: str) -> HistoryTurn | None:
        """Return the best turn so far if this answer says that it is good enough; None for any other answer."""
        return self._history.kept_by(content)

    def response_content(self, text: str) -> str:
        """Return a response as message content, with the opening tag of the reasoning if the prompt holds it."""
        return f"{THINK_START}\n{text}" if opens_thought(self._context.tokenizer, self.prompt) else text

    def add(self, turn: Turn, score: float | None) -> None:
        """Add a judged turn; afterwards the episode has ended or has its next prompt.

        `score`: reward of the verdict alone, which decides termination; None for a fault.
        """
        self.turns.append(turn)
        answer = self.response_content(turn.response_text)
        self.termination = self._history.add(answer, turn.kernel_source, turn.verdict, score)
        if self.termination is None:
            self._ask_again(turn.response_token_ids)
            if not self.has_room:
                self.termination = Termination.CONTEXT_LIMIT

    def trajectory(self) -> Trajectory:
        """Return the finished episode."""
        plan = self.plan
        if self.termination is None or not self.turns:
            raise InfrastructureError(f"{plan.trajectory_id}: the episode was lost on the way")
        return plan.trajectory(self._context.run_id, self._context.policy_digest, self.turns, self.termination)

    def details(self) -> dict[str, Any]:
        """Return the place of the episode in the run, for logs of turns."""
        plan = self.plan
        return {
            "run_id": self._context.run_id,
            "iteration": plan.iteration,
            "trajectory_id": plan.trajectory_id,
            "sample_index": plan.sample_index,
            "level": plan.row.problem.level,
        }

    def answered_messages(self) -> list[Message]:
        """Return the last turn's prompt and answer; only for a finished episode."""
        return [
            *self.messages,
            Message(role=Role.ASSISTANT, content=self.response_content(self.turns[-1].response_text)),
        ]

    def _ask_again(self, response_token_ids: Sequence[int]) -> None:
        context = self._context
        tokenizer, thinking = context.tokenizer, context.episode.thinking
        before, self._whole = self._whole, self._history.messages()
        if self._whole[:-2] == before:
            messages = [*self.messages, *self._whole[-2:]]
            prompt = next_prompt(tokenizer, self.prompt, response_token_ids, messages, thinking=thinking)
        else:
            messages = self._whole
            prompt = rewritten_prompt(tokenizer, messages, thinking=thinking)
        if context.episode.history_tokens:
            room = self._context_tokens - context.sampling.max_new_tokens
            longest = min(self._first_tokens + context.episode.history_tokens, room)
            if len(prompt.token_ids) > longest:
                fitting = compressed(self._history.turns, lambda rung: self._length(rung) <= longest)
                messages = self._history.messages(fitting)
                prompt = rewritten_prompt(tokenizer, messages, thinking=thinking)
        self.messages, self.prompt = messages, prompt

    def _length(self, history: Sequence[HistoryTurn]) -> int:
        """Return the number of tokens of the prompt with this history."""
        messages, thinking = self._history.messages(history), self._context.episode.thinking
        return len(encode_prompt(self._context.tokenizer, messages, thinking=thinking))
