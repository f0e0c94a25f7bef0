"""Episode loop, in the rollout worker: alternates between the engine and the judge until every episode has ended.

Episodes advance in cohorts, of the size that the engine asks for. Each response goes to the judge as soon as it is
complete; one cohort is generated while another is judged. Cohorts depend on the plan alone, never on timing: the same
seed gives the same tokens, to the bit.

A fault or timeout of the engine or the judge is data: the work is retried once, and then the turn is kept with the
verdict `infrastructure_error`, without reward, and ends its episode. Other episodes continue; no wait is unlimited.
Where most episodes ended so, the rollout itself has failed.
"""

import asyncio
import itertools
import logging
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kernels_eval.error_categories import ErrorCategory
from kernels_eval.errors import InfrastructureError, InputError, one_cause
from kernels_eval.rewards import Answer
from tasks.rollout.config import RolloutConfig
from tasks.rollout.engines import Engine, FinishReason, Generation, GenerationRequest
from tasks.rollout.episode import Episode, EpisodeLog, EpisodePlan, RolloutContext
from tasks.rollout.judge_client import JudgeClient, JudgedResponse, fault_verdict
from tasks.rollout.kept_episodes import KeptEpisodes
from tasks.rollout.kernel_extraction import extract_kernel, without_reasoning
from tasks.rollout.turn_tokens import response_text
from tasks.rollout.watchdog import Phase, Watchdog
from tasks.trajectories.schema import Trajectory, Turn

logger = logging.getLogger("kernelmill.rollout")
_MOST_FAULTS = 0.5
"""Share of the episodes."""
_SMALLEST_SHARED = 32
"""Episodes from which a second cohort pays: smaller batches cost about as much as whole ones."""


@dataclass(slots=True)
class RolloutCounts:
    """Counts so far, for progress reports."""

    planned: int = 0
    left_out: int = 0
    finished: int = 0
    turns: int = 0
    correct_turns: int = 0
    faults: int = 0
    tokens: int = 0
    """Of responses."""
    prompt_tokens: int = 0
    kept_tokens: int = 0
    """Those of responses that an earlier attempt had drawn; `tokens` has them too."""
    judging: int = 0
    last_fault: str = ""

    def add_turn(self, turn: Turn) -> None:
        """Count a judged turn of an episode."""
        self.turns += 1
        self.correct_turns += turn.verdict.correct
        if turn.reward is None:
            self.faults += 1
            self.last_fault = turn.verdict.error_message or ""

    def take_over(self, trajectory: Trajectory) -> None:
        """Count an episode that an earlier attempt has played."""
        tokens = sum(len(turn.response_token_ids) for turn in trajectory.turns)
        self.finished += 1
        self.tokens += tokens
        self.kept_tokens += tokens
        self.prompt_tokens += sum(len(turn.prompt_token_ids) for turn in trajectory.turns)
        for turn in trajectory.turns:
            self.add_turn(turn)

    def check_faults(self) -> None:
        """Raise InfrastructureError if the machine failed in most episodes: the others say little of the policy."""
        if self.faults > _MOST_FAULTS * self.planned:
            found = f"faults of the machine ended {self.faults} of {self.planned} episodes"
            raise InfrastructureError(f"{found}, more than {_MOST_FAULTS:.0%}; the last one: {self.last_fault}")


class EpisodeLoop:
    """Runs the episodes of one rollout."""

    def __init__(
        self,
        context: RolloutContext,
        engine: Engine,
        judge_client: JudgeClient,
        counts: RolloutCounts | None = None,
        logs: Sequence[EpisodeLog] = (),
        config: RolloutConfig | None = None,
        kept: KeptEpisodes | None = None,
    ) -> None:
        """`counts` are kept up to date. `config`: how long a response may take, and a sample wait unnamed.

        `kept`: episodes that an earlier attempt has finished; those of this one are kept there too.
        """
        config = config or RolloutConfig()
        self._context = context
        self._engine = engine
        self._judge_client = judge_client
        self._logs = logs
        self._patience_s = config.generation_patience_s
        self._shared = config.samples_per_kernel
        self._watchdog = Watchdog(config.watch_after_s)
        self._kept = kept
        self.counts = counts or RolloutCounts()

    async def run(self, plans: Sequence[EpisodePlan]) -> list[Trajectory]:
        """Return one trajectory for each plan whose first prompt leaves room for a response, in no particular order.

        May be called again with further plans. Raises InputError if no prompt ever left room, InfrastructureError if
        the engine as a whole fails.
        """
        started = [Episode(plan, self._context, self._engine.context_tokens) for plan in plans]
        episodes = [episode for episode in started if episode.has_room]
        if not episodes and not self.counts.planned:
            raise InputError(
                f"rollout.sampling.max_new_tokens: {self._context.sampling.max_new_tokens} tokens after any of "
                f"the prompts are more than the policy's context of {self._engine.context_tokens}"
            )
        episodes.sort(key=lambda episode: (len(episode.prompt.token_ids), episode.plan.trajectory_id))
        self.counts.planned += len(episodes)
        self.counts.left_out += len(plans) - len(episodes)
        watching = asyncio.ensure_future(self._watchdog.watch())
        cohorts = [asyncio.ensure_future(self._run_cohort(cohort)) for cohort in self._cohorts(episodes)]
        try:
            with one_cause():
                played = await asyncio.gather(*cohorts)
        finally:
            for task in (watching, *cohorts):
                task.cancel()
        return [trajectory for cohort in played for trajectory in cohort]

    def _cohorts(self, episodes: Sequence[Episode]) -> list[Sequence[Episode]]:
        """Cut the episodes into cohorts of equal size, at least two if that pays."""
        wanted = 2 if len(episodes) >= 2 * _SMALLEST_SHARED else 1
        count = max(wanted, math.ceil(len(episodes) / self._engine.cohort_size))
        unit = self._shared  # conversations that share their first answer stay together
        bounds = [unit * round(index * len(episodes) / count / unit) for index in range(count + 1)]
        return [episodes[start:end] for start, end in itertools.pairwise(bounds)]

    async def _run_cohort(self, cohort: Sequence[Episode]) -> list[Trajectory]:
        kept = self._kept.take([episode.plan.trajectory_id for episode in cohort]) if self._kept is not None else None
        if kept is not None:
            for trajectory in kept:
                self.counts.take_over(trajectory)
            return kept
        active = list(cohort)
        while active:
            sharing = self._sharing(active)
            async with asyncio.TaskGroup() as judging:
                async for index, generation in self._generations([episodes[0].request() for episodes in sharing]):
                    judging.create_task(self._finish_turn(sharing[index], generation))
            active = [episode for episode in active if episode.termination is None]
        played = [episode.trajectory() for episode in cohort]
        if self._kept is not None:
            await self._kept.keep(played)
        return played

    def _sharing(self, active: Sequence[Episode]) -> list[list[Episode]]:
        """Return the episodes that get the same next answer: each alone, or on the first turn several of a problem."""
        together: dict[tuple[str, int], list[Episode]] = {}
        for episode in active:
            sample = episode.plan.sample_index
            place = sample if episode.turns else sample // self._shared
            together.setdefault((episode.plan.group_id, place), []).append(episode)
        return list(together.values())

    async def _generations(self, requests: Sequence[GenerationRequest]) -> AsyncIterator[tuple[int, Generation]]:
        """Yield every request's response exactly once, whatever the engine does; failed requests are retried once."""
        open_requests = dict(enumerate(requests))
        for last_attempt in (False, True):
            indices = list(open_requests)
            for index in indices:
                self._watchdog.begins(requests[index].name, Phase.GENERATION)
            async for place, generation in self._attempt([open_requests[index] for index in indices]):
                index = indices[place]
                if index not in open_requests or (generation.finish_reason is FinishReason.FAULT and not last_attempt):
                    continue
                del open_requests[index]
                self._watchdog.ends(requests[index].name, Phase.GENERATION)
                yield index, generation
            if not open_requests:
                return
            self._log_unanswered(list(open_requests.values()), last_attempt)
        for index, request in open_requests.items():
            self._watchdog.ends(request.name, Phase.GENERATION)
            yield index, Generation((), (), FinishReason.FAULT, 0.0, error="the engine gave no answer, twice")

    async def _attempt(self, requests: Sequence[GenerationRequest]) -> AsyncIterator[tuple[int, Generation]]:
        """Yield the engine's responses until it has no more, or until the time limit."""
        deadline = asyncio.get_running_loop().time() + self._patience_s
        responses: Any = aiter(self._engine.generate(requests, self._context.sampling))
        async with aclosing(responses) as stream:
            while True:
                try:
                    async with asyncio.timeout_at(deadline):
                        answer = await anext(stream)
                except (StopAsyncIteration, TimeoutError):
                    return
                yield answer

    def _log_unanswered(self, requests: Sequence[GenerationRequest], last_attempt: bool) -> None:
        names = ", ".join(request.name for request in requests[:5]) + (", …" if len(requests) > 5 else "")
        consequence = "given up" if last_attempt else "asked for once more"
        logger.warning("%s: %d without an answer, %s: %s", Phase.GENERATION, len(requests), consequence, names)

    async def _finish_turn(self, sharing: Sequence[Episode], generation: Generation) -> None:
        """Judge an answer, and add the turn to every episode that it is the next one of."""
        context, episode = self._context, sharing[0]
        problem = episode.plan.row.problem
        name, index = episode.request().name, len(episode.turns)
        text = response_text(context.tokenizer, generation.token_ids)
        content = episode.response_content(text)
        truncated = generation.finish_reason is FinishReason.LENGTH
        kernel, kept = extract_kernel(content, truncated=truncated), episode.kept_by(content)
        self.counts.tokens += len(generation.token_ids)
        self.counts.prompt_tokens += len(episode.prompt.token_ids)
        self.counts.judging += 1
        if generation.finish_reason is FinishReason.FAULT:
            judged = JudgedResponse(
                fault_verdict(ErrorCategory.ENGINE_FAULT, generation.error or "the engine failed"), None, None, 0.0
            )
        elif kept is not None:
            kernel = kept.kernel_source
            judged = self._judge_client.repeat(kept.verdict, Answer(text, len(generation.token_ids)))
        else:
            with self._watchdog.waiting(name, Phase.JUDGEMENT):
                judged = await self._judge_client.judge_response(
                    problem,
                    kernel,
                    generation.finish_reason,
                    Answer(text, len(generation.token_ids)),
                    name,
                    reasoning_ended=without_reasoning(content) is not None,
                )
        turn = Turn(
            turn_index=index,
            **episode.author,
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
        self.counts.judging -= 1
        for each in sharing:
            self._add(each, turn, judged.score)

    def _add(self, episode: Episode, turn: Turn, score: float | None) -> None:
        for log in self._logs:
            log.log_turn(episode.plan.row.problem.problem_id, episode.messages, turn, episode.details())
        episode.add(turn, score)
        if episode.termination is not None:
            for log in self._logs:
                log.log_trajectory(episode.trajectory(), episode.answered_messages(), self._context.episode.gamma)
        self.counts.add_turn(turn)
        self.counts.finished += episode.termination is not None
