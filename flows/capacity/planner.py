"""GPUs, memory, disk and time that a run needs, and the least that would do.

`plan(config, gpu)` evaluates the configuration as it is, then looks for the lowest ZeRO stage on the configured ranks
(lower stages communicate less) and for the fewest ranks at any stage.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from flows.capacity.generation import generation_of
from flows.capacity.memory import (
    GIB,
    STAGES,
    Shape,
    Stage,
    TrainingJob,
    checkpoint_bytes,
    shape_of,
    training_memory,
)
from flows.capacity.sharing import gpu_memory_beside, host_memory, servers_of
from flows.capacity.speed import (
    Assumptions,
    Gpu,
    heldout_problems,
    host_step_seconds,
    training_tokens_a_second,
)
from flows.settings.configuration import RunConfig
from tasks.cluster.placement import Kind, Need, whole_gpus
from tasks.rollout.config import RolloutJudgeConfig
from tasks.training.config import SMALL_SHARE
from tasks.training.deepspeed_file import offloaded_share, stage_on

MOST_RANKS = 64
LADDER = (
    "rollout.problems_per_iteration=1",
    "rollout.samples_per_problem=2",
    "update.optimizer_steps=1",
    "update.activation_checkpointing=true",
    "update.tokens_per_rank=2048",
)
"""Settings to try in this order if memory does not suffice."""


@dataclass(frozen=True)
class CapacityPlan:
    """Resources and speed of a run on GPUs of one model."""

    shape: Shape
    gpu: Gpu
    training: dict[str, float]
    """Bytes of one rank by purpose."""
    training_fits: bool
    sft: dict[str, float]
    """Bytes of one rank in SFT, by purpose; empty without SFT."""
    sft_fits: bool
    stage: Stage
    lowest_stage: Stage | None
    """Lowest ZeRO stage that fits on the configured ranks. None: none fits."""
    fewest_ranks: int | None
    """Fewest ranks on which some stage fits. None: more than `MOST_RANKS`."""
    cache_tokens: int | None
    """Tokens that one server's cache holds. None: no server generates."""
    wanted_cache_tokens: int
    """Tokens of all concurrent sequences on one server."""
    share_of_longest: int
    """Tokens of the longest sequence on one rank: all of them divided by `update.context_parallel`."""
    checkpoint_bytes: float
    """Bytes of a policy with its optimizer's state, if that is written."""
    disk_bytes: float
    """Bytes that all iterations leave on disk."""
    host: dict[str, float]
    """Bytes of host memory by purpose, of all nodes together."""
    beside: dict[str, float]
    """Bytes of GPU memory beside the update's, by purpose, of all GPUs together."""
    update_gpus: float
    generation_gpus: float
    judge_gpus: float
    gpus: int
    """GPUs of the run; shared ones count once."""
    training_tokens_s: float
    generation_tokens_s: float | None
    sft_s: float | None
    """Seconds of SFT's steps, as far as their number is known."""
    evaluation_s: float
    """Seconds of one held-out evaluation."""
    rollout_s: float
    update_s: float
    host_step_s: float
    """Seconds of an iteration in which the host steps an offloaded optimizer."""
    starting_s: float
    """Seconds until an update's engine has its models and its optimizer."""
    starts: tuple[int, int]
    """Starts of an update's engine in the first iteration, and in each further one."""
    saving_s: float
    """Mean seconds to write an iteration's policy, with its optimizer's state where it has one."""
    sequences: int
    """Concurrent sequences on one server."""
    iterations: int
    rolls_out_beside: bool
    """Rollouts and updates go on side by side."""

    @property
    def fits(self) -> bool:
        """True if SFT, update and generation fit as configured, and on one GPU everything that shares it."""
        generates = self.cache_tokens is None or self.cache_tokens >= self.longest
        trains = self.training_fits and self.sft_fits
        return trains and generates and (self.gpus != 1 or self.one_gpu_bytes <= self.gpu.memory_gib * GIB)

    @property
    def one_gpu_bytes(self) -> float:
        """Bytes of GPU memory of all that shares one GPU."""
        return sum(self.training.values()) + sum(self.beside.values())

    @property
    def iteration_s(self) -> float:
        """Seconds of an iteration without the starts of engines."""
        parts = self.rollout_s, self.update_s + self.host_step_s + self.saving_s
        return max(parts) if self.rolls_out_beside else sum(parts)

    @property
    def iterations_s(self) -> float:
        """Seconds of all iterations."""
        first, further = self.starts
        starts = first + (self.iterations - 1) * further if self.iterations else 0
        return self.iterations * self.iteration_s + starts * self.starting_s

    @property
    def longest(self) -> int:
        """Tokens of one whole sequence: the least that a server must hold."""
        return self.wanted_cache_tokens // max(self.sequences, 1)


def plan(config: RunConfig, gpu: Gpu, assumed: Assumptions | None = None) -> CapacityPlan:
    """Return the resources of the run on GPUs of this model. Raises InputError if the model's sizes are not known."""
    assumed = assumed or Assumptions()
    shape = shape_of(config.model)
    update, rollout = config.update, config.rollout
    answers = generation_of(config, shape, gpu, assumed)
    share_of_longest = math.ceil(answers.longest / update.context_parallel)
    share = update.gpus_per_rank if 0 < update.gpus_per_rank < 1 else 1.0  # another process has the rest of the GPU
    room = gpu.memory_gib * GIB * share
    job = replace(training_job(config, shape), tokens=max(update.tokens_per_rank, share_of_longest))
    used = training_memory(job)
    of_sft = {} if config.sft.is_left_out else training_memory(sft_job(config, shape))
    judges = config.rollout.judge_actors
    judged = answers.samples * answers.turns / _judged_a_second(config, assumed, config.rollout.judge)
    heldout = heldout_problems(config) * (config.evaluation.samples_per_problem + config.evaluation.greedy)
    weights, optimizer = _published_bytes(config, job)
    host = host_memory(config, shape, job)
    keeps = _keeps_engines(config, used, gpu)
    training = training_tokens_a_second(
        shape, gpu, job, assumed,
        min(job.tokens, answers.trained_tokens / (update.optimizer_steps * update.ranks)),
        int(job.reference) + int(update.old_log_probs != "sampler"), update.compile,
    )  # fmt: skip
    return CapacityPlan(
        shape=shape,
        gpu=gpu,
        training=used,
        training_fits=sum(used.values()) <= room,
        sft=of_sft,
        sft_fits=sum(of_sft.values()) <= room,
        stage=job.stage,
        lowest_stage=_first_fitting_stage(job, room),
        fewest_ranks=_fewest_ranks(job, room),
        cache_tokens=answers.cache_tokens,
        wanted_cache_tokens=answers.sequences * answers.longest,
        share_of_longest=share_of_longest,
        sequences=answers.sequences,
        checkpoint_bytes=weights + optimizer,
        disk_bytes=disk_bytes(config, shape),
        host=host,
        beside=gpu_memory_beside(config, shape, gpu.memory_gib * GIB, answers.served_share),
        update_gpus=update.ranks * update.gpus_per_rank,
        generation_gpus=servers_of(config) * rollout.sglang.gpus_per_server + rollout.gpus,
        judge_gpus=judges.count * judges.gpus,
        gpus=gpus_of(config),
        training_tokens_s=training,
        generation_tokens_s=answers.tokens_s,
        sft_s=_sft_seconds(config, shape, gpu, assumed),
        evaluation_s=heldout * (answers.conversation_s + answers.turns / _judged_a_second(config, assumed)),
        rollout_s=answers.samples * answers.conversation_s + judged,
        update_s=update.epochs * answers.trained_tokens / training,
        host_step_s=update.epochs
        * update.optimizer_steps
        * host_step_seconds(job.stepped_parameters, job.offloaded, update.ranks * update.threads_per_rank, assumed),
        starting_s=_starting_seconds(update.ranks, used, host, assumed),
        starts=_starts(config, keeps),
        saving_s=(config.trained_policies * weights + _states_written(config, keeps) * optimizer) / assumed.saving,
        iterations=config.iterations,
        rolls_out_beside=rollout.staleness > 0,
    )


def _keeps_engines(config: RunConfig, used: Mapping[str, float], gpu: Gpu) -> bool:
    """True if the ranks hold the engines of all agents at once: together they are small (tasks.training.ranks).

    `used`: bytes of one rank by purpose. The reference stays too, once; what else an update takes is free when it ends.
    """
    engine = sum(used[part] for part in ("weights", "gradients", "optimizer"))
    held = config.trained_policies * engine + used["reference"]
    return held <= SMALL_SHARE * gpu.memory_gib * GIB


def _starts(config: RunConfig, keeps: bool) -> tuple[int, int]:
    """Return how many engines start in the first iteration, and in each further one.

    Without the optimizer's state every update loads its engine. Large engines give way to each other, but for the one
    of the agent that an iteration ends with: the next one begins with it.
    """
    trained = config.trained_policies
    if not config.update.optimizer_state:
        return trained, trained
    return trained, 0 if keeps else trained - 1


def _starting_seconds(ranks: int, used: Mapping[str, float], host: Mapping[str, float], assumed: Assumptions) -> float:
    """Return the seconds until an update's engine has its models and its optimizer; hosts start at the same time."""
    started = ranks * (used["weights"] + used["reference"]) + host["offloaded optimizer"]
    return started / math.ceil(ranks / assumed.ranks_a_host) / assumed.starting


def _states_written(config: RunConfig, keeps: bool) -> float:
    """Return how many optimizer's states an iteration writes, on average: of an engine that gives way in any case."""
    give_way = 0 if keeps else config.trained_policies - 1
    return give_way + (config.trained_policies - give_way) / config.update.checkpoint_interval


def _judged_a_second(config: RunConfig, assumed: Assumptions, changed: RolloutJudgeConfig | None = None) -> float:
    """Return how many kernels all judges judge in a second; the GPU of each bounds what its workers do.

    `changed`: the judge's settings that rollouts have of their own; none: a held-out evaluation.
    """
    judge = config.judge.model_copy(update={"workers": config.judge_workers})
    judge = judge if changed is None else changed.applied_to(judge)
    of_workers = judge.workers / assumed.judging_s
    of_one = of_workers if judge.device == "cpu" else min(of_workers, assumed.judged_per_gpu)
    return max(config.rollout.judge_actors.count, 1) * of_one


def _sft_seconds(config: RunConfig, shape: Shape, gpu: Gpu, assumed: Assumptions) -> float | None:
    """Return the seconds of SFT's steps; None if their number depends on a file of pairs."""
    sft, job = config.sft, sft_job(config, shape)
    if sft.is_left_out:
        return 0.0
    if sft.epochs is not None and sft.data.path is not None:
        return None
    steps = sft.steps_for(round(sft.data.generated_pairs * (1 - sft.validation_fraction)))
    of_step = sft.batch_size * (assumed.prompt_tokens + assumed.answer_share * config.rollout.sampling.max_new_tokens)
    of_batch = min(job.tokens, of_step / job.ranks)
    compiled = sft.compile or config.update.compile
    return steps * of_step / training_tokens_a_second(shape, gpu, job, assumed, of_batch, 0, compiled)


def training_job(config: RunConfig, shape: Shape) -> TrainingJob:
    """Return the update's memory parameters, with a micro-batch of `update.tokens_per_rank` tokens."""
    update = config.update
    return TrainingJob(
        shape=shape,
        dtype=config.model.dtype,
        stage=cast(Stage, stage_on(update.ranks, update.deepspeed, update.zero_stage)),
        ranks=update.ranks,
        tokens=update.tokens_per_rank,
        checkpointing=update.activation_checkpointing,
        reference=update.kl_coefficient > 0,
        critic=update.estimator.critic,
        trained=None if update.lora is None else _adapter_parameters(shape, update.lora.rank),
        offloaded=offloaded_share(update.deepspeed),
    )


def sft_job(config: RunConfig, shape: Shape) -> TrainingJob:
    """Return SFT's memory parameters: the update's engine, for one model; adapters are SFT's own."""
    lora = config.sft.lora
    return replace(
        training_job(config, shape),
        tokens=max(config.update.tokens_per_rank, math.ceil(config.sft.max_tokens / config.update.context_parallel)),
        reference=False,
        critic=False,
        trained=None if lora is None else _adapter_parameters(shape, lora.rank),
    )


def disk_bytes(config: RunConfig, shape: Shape) -> float:
    """Return the bytes that policies leave on disk: the first one, those before repairs and before a joint epoch, and
    those of the iterations (tasks.training.retention).
    """
    weights, optimizer = _published_bytes(config, training_job(config, shape))
    count, interval, weights_interval = (
        config.iterations,
        config.update.checkpoint_interval,
        config.update.weights_interval,
    )
    kept = count if weights_interval == 1 else min(count // weights_interval + 3 + config.rollout.staleness, count)
    whole = min(-(-count // interval), kept)
    first = 1 + (config.sft.repairs.problems > 0) + (config.sft.joint.problems > 0)
    return config.policies * ((first + kept) * weights + whole * optimizer)


def _published_bytes(config: RunConfig, job: TrainingJob) -> tuple[float, float]:
    """Return the bytes of a published policy's weights, and of its optimizer's state if that is published."""
    weights, optimizer = checkpoint_bytes(job)
    return weights, optimizer if config.update.optimizer_state else 0.0


def needs_of(config: RunConfig) -> dict[Kind, Need]:
    """Return the resources that the run's workers reserve in Ray, by kind of worker."""
    rollout, judges = config.rollout, config.rollout.judge_actors
    return {
        "update": Need((config.update.gpus_per_rank,) * config.update.ranks),
        "rollout": Need((rollout.sglang.gpus_per_server,) * servers_of(config) + (rollout.gpus,)),
        "judge": Need((judges.gpus,) * judges.count, judges.cpus * judges.count),
    }


def gpus_of(config: RunConfig) -> int:
    """Return the whole GPUs of a run: fractions are packed onto one GPU if they fit, as Ray does."""
    return whole_gpus([gpus for need in needs_of(config).values() for gpus in need.gpus])


def _first_fitting_stage(job: TrainingJob, room: float) -> Stage | None:
    """Return the lowest stage that fits; a file that offloads the optimizer does so at its own stage alone."""
    jobs = [replace(job, stage=stage, offloaded=job.offloaded if stage == job.stage else 0.0) for stage in STAGES]
    return next((other.stage for other in jobs if sum(training_memory(other).values()) <= room), None)


def _fewest_ranks(job: TrainingJob, room: float) -> int | None:
    counts = range(1, MOST_RANKS + 1)
    return next((ranks for ranks in counts if _first_fitting_stage(replace(job, ranks=ranks), room) is not None), None)


def _adapter_parameters(shape: Shape, rank: int) -> int:
    """Return the weights of adapters on every linear module: rank · (in + out) each (Hu et al. 2021).

    Of a model with experts on the attention's alone (tasks.training.config.check_adapters).
    """
    width, shared = shape.heads * shape.head_dim, shape.key_value_heads * shape.head_dim
    sides = 2 * (shape.hidden + width) + 2 * (shape.hidden + shared)
    if not shape.experts:
        sides += 3 * (shape.hidden + shape.intermediate)
    return shape.layers * rank * sides
