"""Rollout worker: a warm Ray actor that holds the judge's workers, and the engine as long as its policy stays the same.

It yields `RolloutProgress` now and then, and at last the reference of the published batch. Nothing is published before
the rollout is complete. A killed rollout is run again, draws the same tokens, and takes over the episodes that it had
finished (tasks.rollout.kept_episodes).
"""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from logging import LogRecord
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray

from kernels_eval.config import JudgeConfig, changes_between
from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel
from tasks.agents.team import lead_of
from tasks.pipeline.references import CheckpointRef, ProblemSetRef, TrajectoryBatchRef
from tasks.problems.row import Split
from tasks.rollout.config import EpisodeConfig, JudgeActorsConfig, JudgingPlace, RolloutConfig
from tasks.rollout.curriculum import MANIFEST_KEY, CurriculumState, capped, rows_up_to
from tasks.rollout.engines import Engine, PolicyServer
from tasks.rollout.episode import EpisodeLog, EpisodePlan, RolloutContext, authors_in, plan_episodes
from tasks.rollout.episode_loop import EpisodeLoop, RolloutCounts
from tasks.rollout.focus import MANIFEST_KEY as FOCUS_KEY
from tasks.rollout.focus import FocusState
from tasks.rollout.judge_client import AsyncJudge, JudgeClient, JudgeWithSettings
from tasks.rollout.kept_episodes import KeptEpisodes, kept_episodes
from tasks.rollout.logs import TURN_LINES, LineLogger, relay_logs
from tasks.rollout.prompts import judge_for
from tasks.rollout.refill import MANIFEST_KEY as REFILL_KEY
from tasks.rollout.refill import Refill, RefillRecord, run_and_refill
from tasks.trajectories.groups import SHARED_KEY
from tasks.trajectories.schema import KEPT_TOKENS, POLICY_VERSION

if TYPE_CHECKING:
    from tasks.rollout.engines.kind import EarlyStart

logger = logging.getLogger("kernelmill.rollout")
REPORT_INTERVAL_S = 0.25
_LEFT_CPUS = 2
"""CPUs that a judge on all CPUs leaves to others."""


@dataclass(frozen=True, slots=True)
class RolloutProgress:
    """Progress of a rollout."""

    done: int
    total: int
    figures: dict[str, float]
    records: tuple[LogRecord, ...]
    """Log records since the last report."""


class RolloutRequest(FrozenModel):
    """One rollout. Equal requests give equal tokens."""

    policy: CheckpointRef
    problems: ProblemSetRef
    split: Split
    """`train`: `problems_per_iteration` problems drawn by (seed, iteration). `heldout`: all of them."""
    config: RolloutConfig
    judge: JudgeConfig
    run_id: str
    iteration: int
    seed: int
    destination: Path
    curriculum: CurriculumState | None = None
    """Limits of turns and levels; None: no limits."""
    refill: Refill | None = None
    """Further problems if groups have no gradient; None: the first draw only."""
    focus: FocusState | None = None
    """Groups of earlier iterations, by family; None: problems are drawn evenly."""
    turn_lines: bool = False
    """Log a line per turn and a summary per trajectory."""
    kept: Path | None = None
    """Folder for finished episodes, from which a later attempt goes on; None: a killed rollout begins anew."""


async def roll_out(
    request: RolloutRequest,
    engine: Engine,
    tokenizer: Any,
    judge: AsyncJudge,
    counts: RolloutCounts,
) -> TrajectoryBatchRef:
    """Run the requested episodes with this engine and judge, publish their trajectories; keep `counts` up to date."""
    with kept_episodes(request.kept, request.run_id, request.config.episode.gamma) as kept:
        return await _roll_out(request, engine, tokenizer, judge, counts, kept)


async def _roll_out(
    request: RolloutRequest,
    engine: Engine,
    tokenizer: Any,
    judge: AsyncJudge,
    counts: RolloutCounts,
    kept: KeptEpisodes | None,
) -> TrajectoryBatchRef:
    from kernels_eval.rewards import reward_bounds, reward_of
    from tasks.models.chat import check_system_message
    from tasks.problems.problem_set import read_problems
    from tasks.trajectories.json_logs import JsonLogs
    from tasks.trajectories.writer import write_trajectories

    config = request.config
    rows = read_problems(request.problems, request.split)
    if not rows:
        raise InputError(f"{request.problems.uri}: expected {request.split.value} problems, found none")
    episode, curriculum = config.episode, request.curriculum
    if curriculum is not None:
        rows, episode = rows_up_to(rows, curriculum.level), capped(episode, curriculum.turns)

    focus = request.focus
    weights = None if focus is None else focus.weights(rows, config.focus)

    def draw(skip: int, problems: int) -> list[EpisodePlan]:
        samples = config.samples_per_problem
        return plan_episodes(rows, request.split, problems, samples, request.iteration, request.seed, skip, weights)

    _warn_of_sampling(request)
    context = RolloutContext(
        run_id=request.run_id,
        policy_digest=request.policy.digest,
        authors=authors_in(request.policy, episode.agents),
        tokenizer=tokenizer,
        episode=episode,
        sampling=config.sampling,
        backend=request.judge.backend,
    )
    if episode.system_message is not None:
        check_system_message(tokenizer)
    reward_bounds(episode.reward)  # an unknown name is refused before anything is generated
    judge_client = JudgeClient(judge, partial(reward_of, episode.reward), config.judge_patience_s)
    json_logs = JsonLogs(Path(config.trajectory_logs)) if config.trajectory_logs is not None else None
    logs: list[EpisodeLog] = [LineLogger()] if request.turn_lines else []
    if json_logs is not None:
        logs.append(json_logs)
    episode_loop = EpisodeLoop(context, engine, judge_client, counts, logs, config, kept)
    started = time.perf_counter()
    try:
        trajectories, refilled = await run_and_refill(
            episode_loop, draw, request.refill, config.problems_per_iteration, len(rows), episode.gamma
        )
    finally:
        if json_logs is not None:
            await asyncio.to_thread(json_logs.close)
    counts.check_faults()
    if left_out := counts.left_out:
        logger.warning("%d of %d episodes left out: their prompts leave no room", left_out, left_out + counts.planned)
    seconds = time.perf_counter() - started
    metadata = _metadata(request, episode, refilled, counts, seconds)
    return await asyncio.to_thread(
        write_trajectories, trajectories, config.episode.gamma, request.destination, metadata
    )


def _warn_of_sampling(request: RolloutRequest) -> None:
    """Say so if samples that are trained on are not drawn from the policy itself."""
    sampling = request.config.sampling
    if request.split is Split.TRAIN and not sampling.is_on_policy:
        logger.warning(
            "training samples are drawn with temperature %g, top_p %g, top_k %d: "
            "off the policy that is trained; on it are 1, 1, 0",
            sampling.temperature, sampling.top_p, sampling.top_k,
        )  # fmt: skip


def _metadata(
    request: RolloutRequest,
    episode: EpisodeConfig,
    refilled: RefillRecord | None,
    counts: RolloutCounts,
    seconds: float,
) -> dict[str, Any]:
    """Return the entries of the batch's manifest; `episode`: the settings as the curriculum limits them."""
    config, curriculum, focus = request.config, request.curriculum, request.focus
    return {
        "episode": episode.model_dump(mode="json"),
        **({} if focus is None else {FOCUS_KEY: focus.model_dump(mode="json")}),
        MANIFEST_KEY: None if curriculum is None else curriculum.model_dump(mode="json"),
        REFILL_KEY: None if refilled is None else refilled.model_dump(mode="json"),
        "sampling": config.sampling.model_dump(mode="json"),
        "engine": config.engine,
        POLICY_VERSION: request.policy.weight_version,
        SHARED_KEY: config.samples_per_kernel,
        "seconds": round(seconds, 3),
        "prompt_tokens": counts.prompt_tokens,
        "generated_tokens": counts.tokens,
        KEPT_TOKENS: counts.kept_tokens,
        "infrastructure_errors": counts.faults,
        "episodes_left_out": counts.left_out,
    }


@dataclass(frozen=True, slots=True)
class _Opened:
    """An engine, what it was opened with, and the policy that it holds."""

    settings: tuple[Any, ...]
    policy: CheckpointRef | None
    engine: Engine
    tokenizer: Any


def _settings_of(config: RolloutConfig) -> tuple[Any, ...]:
    """Return the settings that decide whether an engine can be used again."""
    return (config.engine, config.batch_size, config.threads, config.sglang_urls, config.sglang, config.openai)


class RolloutWorker:
    """Warm Ray actor that lives as long as the run's Ray job; one rollout at a time."""

    def __init__(self) -> None:
        self._opened: _Opened | None = None
        self._judge: tuple[JudgeConfig, JudgeActorsConfig, Any] | None = None
        self._early: EarlyStart | None = None

    def ping(self) -> int:
        """Return the process id, as a sign of life."""
        return os.getpid()

    async def collect(self, request: RolloutRequest) -> AsyncIterator[RolloutProgress | TrajectoryBatchRef]:
        """Run a rollout: yield progress with log records (also while engine and judge start), then the reference."""
        counts = RolloutCounts()
        started = time.perf_counter()

        async def run() -> TrajectoryBatchRef:
            nonlocal started
            engine, tokenizer = await self._engine_for(request)
            judge_config = judge_for(request.config.episode, request.judge)
            judge = await asyncio.to_thread(self._judge_for, judge_config, request.config.judge_actors)
            started = time.perf_counter()
            return await roll_out(request, engine, tokenizer, judge, counts)

        logging.getLogger(TURN_LINES).setLevel(logging.INFO if request.turn_lines else logging.WARNING)
        with relay_logs() as relay:
            running = asyncio.ensure_future(run())
            try:
                while not running.done():
                    await asyncio.wait([running], timeout=REPORT_INTERVAL_S)
                    yield _progress(counts, time.perf_counter() - started, relay.take())
                yield running.result()
            finally:
                running.cancel()
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([running])

    def start_servers(self, config: RolloutConfig, write_model: Callable[[Path], Path], agents: Sequence[str]) -> None:
        """Have the engine's servers start, which the next rollout uses. Arguments: as `EngineKind` takes them."""
        from tasks.rollout.engines.kind import kind_of

        if self._opened is None and self._early is None:
            self._early = kind_of(config).start_early(config, write_model, agents)

    async def with_judge(
        self, work: Callable[[AsyncJudge], AsyncIterator[Any]], config: JudgeConfig, place: JudgingPlace
    ) -> AsyncIterator[Any]:
        """Yield what `work` yields, which is given the warm judge of this configuration."""
        if place.all_cpus:
            spare = max(len(os.sched_getaffinity(0)) - _LEFT_CPUS, 1)
            config = config.model_copy(update={"workers": spare})
        async for message in work(await asyncio.to_thread(self._judge_for, config, place.judge_actors)):
            yield message

    async def _engine_for(self, request: RolloutRequest) -> tuple[Engine, Any]:
        """Return the engine with the policy; loads it if it differs from the last one."""
        from tasks.models.tokenizer import load_tokenizer
        from tasks.rollout.engines import open_engine

        config = request.config
        settings = _settings_of(config)
        opened, self._opened = self._opened, None  # kept only on success
        early, self._early = self._early, None
        if early is not None and opened is None:
            engine = await asyncio.to_thread(early.engine, request.policy)
            opened = None if engine is None else _Opened(_settings_of(early.config), None, engine, None)
        if opened is not None and opened.settings == settings and opened.policy == request.policy:
            self._opened = opened
            return opened.engine, opened.tokenizer
        if opened is not None and not (opened.settings == settings and isinstance(opened.engine, PolicyServer)):
            await opened.engine.close()
            opened = None
        try:
            tokenizer = await asyncio.to_thread(load_tokenizer, lead_of(request.policy).path)
            if opened is None:
                engine = await asyncio.to_thread(open_engine, request.policy, tokenizer, config)
            else:
                engine = opened.engine
                assert isinstance(engine, PolicyServer)
                await engine.serve(request.policy, tokenizer)
        except BaseException:
            if opened is not None:
                await opened.engine.close()
            raise
        finally:
            if early is not None:
                early.remove_model()
        self._opened = _Opened(settings, request.policy, engine, tokenizer)
        return engine, tokenizer

    def _judge_for(self, config: JudgeConfig, actors: JudgeActorsConfig) -> AsyncJudge:
        """Return a judge of this configuration: in this process, or on actors.

        The judge of the last stage stays, with its warm workers and its cache, if the configurations differ only in
        what can be changed for single kernels: stages differ in what they compile and run at the full size.
        """
        from kernels_eval import Judge
        from tasks.rollout.judge_actors import ActorJudge

        if self._judge is not None:
            kept, kept_actors, judge = self._judge
            settings = changes_between(kept, config) if kept_actors == actors else None
            if settings is not None:
                return JudgeWithSettings(judge, settings)
            judge.close()
        judge = ActorJudge(config, actors) if actors.count else Judge(config)
        self._judge = (config, actors, judge)
        return judge


RolloutActor = ray.remote(RolloutWorker)


def _progress(counts: RolloutCounts, seconds: float, records: tuple[LogRecord, ...]) -> RolloutProgress:
    return RolloutProgress(
        records=records,
        done=counts.finished,
        total=counts.planned,
        figures={
            "turns": float(counts.turns),
            "judging": float(counts.judging),
            "tokens_per_s": round((counts.tokens - counts.kept_tokens) / max(seconds, 1e-3), 1),
            "correct": round(counts.correct_turns / max(counts.turns, 1), 4),
        },
    )
