"""Plays episodes: the policy writes, the judge judges, what it said goes into the next prompt.

Episodes go from turn to turn in cohorts, as many together as the engine wants. Within a cohort every response goes to the
judge the moment it is complete, while others are still being written; several cohorts take turns on the engine, so that one
generates while another is judged. Which episodes share a cohort depends on the plan alone, never on timing: a batch has the
same members in every run, and the same seed gives the same tokens, to the bit.

A fault of the engine or the judge is data: the work is tried once more, and then the turn is kept with the verdict
`infrastructure_error`, without reward, and ends its episode. No other episode notices.
"""

import asyncio
import itertools
import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from kernels_eval.errors import InfrastructureError, InputError
from tasks.rollout.config import EpisodeConfig, SamplingConfig
from tasks.rollout.engines.base import Engine, FinishReason, Generation, GenerationRequest
from tasks.rollout.episodes import EpisodeTask
from tasks.rollout.extract import extract_kernel
from tasks.rollout.judging import Judged, Referee, fault_verdict
from tasks.rollout.plan import EpisodePlan
from tasks.rollout.prompts import HistoryTurn
from tasks.rollout.turn_log import log_trajectory, log_turn
from tasks.rollout.turn_tokens import Prompt, first_prompt, next_prompt, response_text
from tasks.trajectories.schema import Termination, Trajectory, Turn

_SMALLEST_SHARED = 32
"""Episodes from which a second cohort pays: smaller batches cost about as much as whole ones."""


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


@dataclass(slots=True)
class Observed:
    """What has happened so far; read by whoever shows progress."""

    planned: int = 0
    left_out: int = 0
    finished: int = 0
    turns: int = 0
    correct_turns: int = 0
    faults: int = 0
    tokens: int = 0
    judging: int = 0


@dataclass(slots=True)
class _Episode:
    plan: EpisodePlan
    prompt: Prompt
    history: list[HistoryTurn] = field(default_factory=list[HistoryTurn])
    turns: list[Turn] = field(default_factory=list[Turn])
    termination: Termination | None = None

    def request(self) -> GenerationRequest:
        index = len(self.turns)
        return GenerationRequest(
            name=f"{self.plan.trajectory_id} turn {index + 1}",
            prompt_token_ids=self.prompt.token_ids,
            seed=self.plan.turn_seed(index),
            routing_key=self.plan.trajectory_id,
        )


class Driver:
    """Plays the episodes of one rollout."""

    def __init__(
        self, setting: Setting, engine: Engine, referee: Referee, on_change: Callable[[Observed], None] = lambda _: None
    ) -> None:
        self._setting = setting
        self._engine = engine
        self._referee = referee
        self._on_change = on_change
        self.observed = Observed()

    async def play(self, plans: Sequence[EpisodePlan]) -> list[Trajectory]:
        """Return one trajectory for each plan whose first prompt leaves room for a response, in no particular order.

        Raises InputError where no prompt leaves room, InfrastructureError where the engine as a whole fails.
        """
        episodes = [episode for episode in map(self._start, plans) if self._has_room(episode.prompt)]
        if not episodes:
            raise InputError(
                f"rollout.sampling.max_new_tokens: {self._setting.sampling.max_new_tokens} tokens after any of the prompts "
                f"are more than the policy's context of {self._engine.context_tokens}"
            )
        episodes.sort(key=lambda episode: (len(episode.prompt.token_ids), episode.plan.trajectory_id))
        self.observed.planned, self.observed.left_out = len(episodes), len(plans) - len(episodes)
        self._on_change(self.observed)
        cohorts = [asyncio.ensure_future(self._play_cohort(cohort)) for cohort in self._cohorts(episodes)]
        try:
            played = await asyncio.gather(*cohorts)
        except BaseExceptionGroup as group:
            raise _first_cause(group) from group
        finally:
            for cohort in cohorts:
                cohort.cancel()
        return [trajectory for cohort in played for trajectory in cohort]

    def _start(self, plan: EpisodePlan) -> _Episode:
        setting = self._setting
        messages = setting.task.messages(plan.row.problem, [], setting.episode, setting.backend)
        return _Episode(plan, first_prompt(setting.tokenizer, messages, thinking=setting.episode.thinking))

    def _has_room(self, prompt: Prompt) -> bool:
        return len(prompt.token_ids) + self._setting.sampling.max_new_tokens <= self._engine.context_tokens

    def _cohorts(self, episodes: Sequence[_Episode]) -> list[Sequence[_Episode]]:
        """Cut the episodes into cohorts of equal size, at least two where that pays."""
        wanted = 2 if len(episodes) >= 2 * _SMALLEST_SHARED else 1
        count = max(wanted, math.ceil(len(episodes) / self._engine.cohort_size))
        bounds = [round(index * len(episodes) / count) for index in range(count + 1)]
        return [episodes[start:end] for start, end in itertools.pairwise(bounds)]

    async def _play_cohort(self, cohort: Sequence[_Episode]) -> list[Trajectory]:
        active = list(cohort)
        while active:
            async with asyncio.TaskGroup() as judging:
                async for index, generation in self._generations([episode.request() for episode in active]):
                    judging.create_task(self._finish_turn(active[index], generation))
            active = [episode for episode in active if episode.termination is None]
        return [self._trajectory(episode) for episode in cohort]

    async def _generations(self, requests: Sequence[GenerationRequest]) -> AsyncIterator[tuple[int, Generation]]:
        """Yield every request's response exactly once, whatever the engine does; what failed is asked for once more."""
        open_requests = dict(enumerate(requests))
        for last_attempt in (False, True):
            indices = list(open_requests)
            stream = self._engine.generate([open_requests[index] for index in indices], self._setting.sampling)
            async for place, generation in stream:
                index = indices[place]
                if index not in open_requests or (generation.finish_reason is FinishReason.FAULT and not last_attempt):
                    continue
                del open_requests[index]
                yield index, generation
            if not open_requests:
                return
        for index in open_requests:
            yield index, Generation((), (), FinishReason.FAULT, 0.0, error="the engine gave no answer, twice")

    async def _finish_turn(self, episode: _Episode, generation: Generation) -> None:
        setting, problem = self._setting, episode.plan.row.problem
        text = response_text(setting.tokenizer, generation.token_ids)
        kernel = extract_kernel(text)
        self.observed.tokens += len(generation.token_ids)
        self.observed.judging += 1
        self._on_change(self.observed)
        if generation.finish_reason is FinishReason.FAULT:
            judged = Judged(fault_verdict("engine_fault", generation.error or "the engine failed"), None, 0.0)
        else:
            judged = await self._referee.judge_response(problem, kernel, generation.finish_reason)
        turn = Turn(
            turn_index=len(episode.turns),
            role=setting.task.role(len(episode.turns)),
            prompt_token_ids=episode.prompt.token_ids,
            response_token_ids=generation.token_ids,
            response_logprobs=generation.logprobs,
            prompt_extends_previous=episode.prompt.extends_previous,
            finish_reason=generation.finish_reason.value,
            response_text=text,
            kernel_source=kernel,
            verdict=judged.verdict,
            reward=judged.reward,
            generation_s=generation.seconds,
            evaluation_s=judged.seconds,
            created_at=datetime.now(UTC),
        )
        episode.turns.append(turn)
        log_turn(problem.problem_id, turn)
        self._go_on_or_end(episode, turn)
        self._observe(episode, turn)

    def _go_on_or_end(self, episode: _Episode, turn: Turn) -> None:
        setting = self._setting
        if turn.reward is None:
            episode.termination = Termination.INFRASTRUCTURE_ERROR
            return
        episode.history.append(
            HistoryTurn(
                response_text=turn.response_text,
                kernel_source=turn.kernel_source,
                verdict=turn.verdict,
                reward=turn.reward,
            )
        )
        episode.termination = setting.task.termination(episode.history, setting.episode)
        if episode.termination is None:
            messages = setting.task.messages(
                episode.plan.row.problem, episode.history, setting.episode, setting.backend
            )
            episode.prompt = next_prompt(
                setting.tokenizer,
                episode.prompt,
                turn.response_token_ids,
                messages,
                thinking=setting.episode.thinking,
            )
            if not self._has_room(episode.prompt):
                episode.termination = Termination.CONTEXT_LIMIT

    def _observe(self, episode: _Episode, turn: Turn) -> None:
        observed = self.observed
        observed.judging -= 1
        observed.turns += 1
        observed.correct_turns += turn.verdict.correct
        observed.faults += turn.reward is None
        observed.finished += episode.termination is not None
        self._on_change(observed)

    def _trajectory(self, episode: _Episode) -> Trajectory:
        plan, problem = episode.plan, episode.plan.row.problem
        if episode.termination is None or not episode.turns:
            raise InfrastructureError(f"{plan.trajectory_id}: the episode was lost on the way")
        trajectory = Trajectory(
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
            turns=tuple(episode.turns),
            termination=episode.termination,
        )
        log_trajectory(trajectory, self._setting.episode.gamma)
        return trajectory


def _first_cause(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first_cause(first) if isinstance(first, BaseExceptionGroup) else first
