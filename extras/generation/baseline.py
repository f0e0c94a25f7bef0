"""Answers of any model behind OpenAI's chat completions to the held-out problems: a baseline beside our policies.

Problems, conversation, samples, judge, rewards and tables are those of a held-out rollout. Token ids and
log-probabilities are not known: their columns hold empty lists. Runs in the rollout's process, with its judge.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from extras.adapters.kernel_episode import KernelEpisode
from extras.adapters.scoring import Scorer
from extras.generation.writers import Draft, RefusedConversationError, Writer
from extras.generation.writers.openai import KEY_VARIABLE, OpenAIWriter
from extras.generation.writers.remembered import RememberedWriter
from kernels_eval.config import JudgeConfig
from kernels_eval.errors import one_cause
from kernels_eval.frozen import FrozenModel
from kernels_eval.problem import Problem
from kernels_eval.verdict import Verdict
from tasks.evaluation.chat_model import ChatModel
from tasks.pipeline.references import ProblemSetRef, Progress, TrajectoryBatchRef
from tasks.problems.row import Split
from tasks.rollout.collect import published_batch
from tasks.rollout.config import JudgingPlace, RolloutConfig
from tasks.rollout.engines import FinishReason
from tasks.rollout.episode import EpisodePlan, plan_episodes
from tasks.rollout.judge_client import AsyncJudge
from tasks.rollout.logs import relay_logs
from tasks.rollout.process import messages_of
from tasks.rollout.prompts import judge_for
from tasks.rollout.worker import REPORT_INTERVAL_S, RolloutProgress
from tasks.trajectories.schema import Termination, Trajectory, Turn

ANSWERS_FILE = "answers.jsonl"


class BaselineRequest(FrozenModel):
    """Held-out answers of one model."""

    model: ChatModel
    problems: ProblemSetRef
    config: RolloutConfig
    judge: JudgeConfig
    run_id: str
    seed: int
    destination: Path
    answers: Path
    """File in which answers are kept until the trajectories are published."""


def collect_answers(request: BaselineRequest, progress: Progress) -> TrajectoryBatchRef:
    """Have the model answer every held-out problem, and publish the trajectories. Needs a running Ray.

    Raises InputError if the server refuses every conversation, InfrastructureError if it does not answer.
    """
    place = JudgingPlace(gpus=request.config.gpus, judge_actors=request.config.judge_actors)
    judge = judge_for(request.config.episode, request.judge)
    work = partial(_answered, request, os.environ.get(KEY_VARIABLE))
    batch = published_batch(messages_of("with_judge", place.gpus, work, judge, place), progress)
    request.answers.unlink(missing_ok=True)
    return batch


async def _answered(
    request: BaselineRequest, key: str | None, judge: AsyncJudge
) -> AsyncIterator[RolloutProgress | TrajectoryBatchRef]:
    """Yield progress, then the published batch."""
    from tasks.problems.problem_set import read_problems
    from tasks.trajectories.writer import write_trajectories

    config, model = request.config, request.model
    rows = read_problems(request.problems, Split.HELDOUT)
    plans = plan_episodes(rows, Split.HELDOUT, len(rows), config.samples_per_problem, 0, request.seed)
    server = OpenAIWriter(model.base_url, model.name, config.sampling, key=key, patience_s=config.generation_patience_s)
    writer = RememberedWriter(server, request.answers)
    scorer = Scorer(_Lent(judge), config.episode, request.judge.backend, config.judge_patience_s)
    baseline = Baseline(request.run_id, writer, scorer)
    began = time.perf_counter()
    running = asyncio.ensure_future(baseline.run(plans))
    try:
        with relay_logs() as logs:
            while not running.done():
                await asyncio.wait([running], timeout=REPORT_INTERVAL_S)
                figures = {"turns": float(baseline.turns), "tokens": float(baseline.generated_tokens)}
                yield RolloutProgress(baseline.finished, len(plans), figures, logs.take())
        trajectories = running.result()
    finally:
        running.cancel()
        await writer.close()
        scorer.close()
    metadata = {
        "episode": config.episode.model_dump(mode="json"),
        "sampling": config.sampling.model_dump(mode="json"),
        "engine": model.uri,
        "seconds": round(time.perf_counter() - began, 3),
        "prompt_tokens": baseline.prompt_tokens,
        "generated_tokens": baseline.generated_tokens,
        "episodes_left_out": len(plans) - len(trajectories),
    }
    yield await asyncio.to_thread(write_trajectories, trajectories, config.episode.gamma, request.destination, metadata)


@dataclass(frozen=True, slots=True)
class _Lent:
    """A judge that the scorer does not close: the rollout's process keeps it warm."""

    judge: AsyncJudge

    async def evaluate_async(self, problem: Problem, kernel_source: str) -> Verdict:
        return await self.judge.evaluate_async(problem, kernel_source)


@dataclass(slots=True)
class Baseline:
    """Conversations of one model with the judge, and their cost."""

    run_id: str
    writer: Writer
    scorer: Scorer
    finished: int = 0
    turns: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    refused: list[RefusedConversationError] = field(default_factory=list[RefusedConversationError])

    async def run(self, plans: Sequence[EpisodePlan]) -> list[Trajectory]:
        """Return a trajectory for each plan that the server does not refuse. Raises its refusal if there is none."""
        with one_cause():
            async with asyncio.TaskGroup() as group:
                conversations = [group.create_task(self._converse(plan)) for plan in plans]
        found = [trajectory for task in conversations if (trajectory := task.result()) is not None]
        if not found and self.refused:
            raise self.refused[0]
        return found

    async def _converse(self, plan: EpisodePlan) -> Trajectory | None:
        """Hold one conversation; None if the server refuses its first prompt."""
        episode, turns = KernelEpisode(plan.row.problem, self.scorer), list[Turn]()
        termination: Termination | None = None
        while termination is None:
            try:
                turn, termination = await self._turn(episode, len(turns), plan.turn_seed(len(turns)))
                turns.append(turn)
            except RefusedConversationError as refused:
                self.refused.append(refused)
                termination = Termination.CONTEXT_LIMIT
        self.finished += 1
        return plan.trajectory(self.run_id, self.writer.digest, turns, termination) if turns else None

    async def _turn(self, episode: KernelEpisode, index: int, seed: int) -> tuple[Turn, Termination | None]:
        asked = time.perf_counter()
        role, agent = episode.role, episode.agent
        draft = await self.writer.write(episode.messages, seed, agent)
        answered = time.perf_counter()
        step = await episode.answer_async(draft.text, draft.completion_tokens, draft.truncated)
        self._count(draft)
        turn = Turn(
            turn_index=index,
            role=role,
            agent=agent,
            prompt_token_ids=(),
            response_token_ids=(),
            response_logprobs=(),
            prompt_extends_previous=False,
            finish_reason=(FinishReason.LENGTH if draft.truncated else FinishReason.STOP).value,
            response_text=draft.text,
            kernel_source=step.scored.kernel_source,
            verdict=step.scored.verdict,
            reward=step.scored.reward,
            generation_s=answered - asked,
            evaluation_s=time.perf_counter() - answered,
            created_at=datetime.now(UTC),
        )
        return turn, step.termination

    def _count(self, draft: Draft) -> None:
        self.turns += 1
        self.prompt_tokens += draft.prompt_tokens
        self.generated_tokens += draft.completion_tokens
