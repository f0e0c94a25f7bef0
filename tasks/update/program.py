"""One RL update as a program that each rank runs: started by `tasks.update.train` on `tasks.training.ranks`.

Yields a progress dict after each optimizer step (`done`, `total`, figures, rows of the `steps` since), and at last the
rows of `metrics.parquet` with the digests of what was written (tasks.training.metrics.record). Random numbers (dropout)
are drawn from (seed, iteration, step, rank): an interrupted update goes on to the same bits. Interim checkpoints
(tasks.training.retention) hold policy or adapter, critic, optimizer states and `prepared.safetensors`.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kernels_eval.errors import InfrastructureError
from tasks.models.policy import load_policy
from tasks.models.tokenizer import load_tokenizer
from tasks.pipeline.digests import hand_over
from tasks.training.adapter_files import AdapterBase
from tasks.training.batches import MicroBatch
from tasks.training.checkpoint import restore_optimizer, save_optimizer, save_weights
from tasks.training.config import SMALL_SHARE
from tasks.training.engine import EngineSettings, PolicyEngine, engine_settings, prepare_model
from tasks.training.program import RankContext, learning_rate
from tasks.training.ranks import held_share
from tasks.training.retention import Interim
from tasks.training.scoring import TokenScorer, score
from tasks.trajectories.groups import GroupKey
from tasks.update.config import UpdateConfig
from tasks.update.credit_assignment import Sample, SampleSet
from tasks.update.critic import CRITIC_FOLDER, CriticEngine, critic_settings, load_critic
from tasks.update.precompute import Prepared, Scorer, load_prepared, prepare, save_prepared
from tasks.update.request import UpdateRequest
from tasks.update.step import optimizer_step, throughput


@dataclass(frozen=True)
class UpdateJob:
    """Everything that one update needs; the same on every rank."""

    request: UpdateRequest
    dtype: str
    samples: SampleSet
    folder: Path
    """Folder in which rank 0 writes the new checkpoint."""
    base: AdapterBase | None = None
    """With LoRA: the policy that the adapters belong to."""
    interim: Interim | None = None
    problems_refilled: int = 0
    """Problems that the rollout drew beyond its first draw, for groups that teach something."""
    needs_state: bool = False
    """The policy is the result of an update: without its optimizer's state nothing goes on from it."""
    is_made_again: bool = False
    """Write nothing: the policy is there, and the engine is held with its optimizer's state."""

    @property
    def config(self) -> UpdateConfig:
        """Settings of the update."""
        return self.request.config

    def on(self, resources: UpdateConfig) -> "UpdateJob":
        """Return the same job with settings that differ in what they take of the machine."""
        return replace(self, request=self.request.model_copy(update={"config": resources}))

    @property
    def resume(self) -> Path | None:
        """The interim checkpoint to go on from, if any."""
        return None if self.interim is None else self.interim.resume


@dataclass
class Engines:
    """Objects that a rank trains, and keeps from one update to the next."""

    policy: PolicyEngine
    critic: CriticEngine | None
    tokenizer: Any
    base: AdapterBase | None

    def save(self, folder: Path, tokenizer: Any = None, optimizer_state: bool = True) -> None:
        """Write policy, critic if there is one, and their optimizer states. Every rank calls it; rank 0 writes."""
        save_weights(self.policy, tokenizer, folder, self.base)
        if self.critic is not None:
            save_weights(self.critic, None, folder / CRITIC_FOLDER)
        if optimizer_state:
            save_optimizer(self.policy, folder)
        if optimizer_state and self.critic is not None:
            save_optimizer(self.critic, folder / CRITIC_FOLDER)


def update_program(rank: RankContext, job: UpdateJob) -> Iterator[dict[str, Any]]:
    """Train the policy on the samples and write the checkpoint. A generator: see the module's docstring."""
    started = time.perf_counter()
    engines = _engines(rank, job)
    config, samples = job.config, job.samples.samples
    hands = _hands(job)
    steps = len(hands) // config.epochs
    prepared = _prepared(rank, job, engines, len(hands))
    prepared_s = time.perf_counter() - started
    steps_before = job.request.iteration * config.optimizer_steps * config.epochs
    longest_response = max(sample.responded for sample in samples)
    told = 0
    rows, first = ([], 0) if job.interim is None else (list(job.interim.rows), job.interim.steps)
    first_mismatch: dict[str, float] = prepared.mismatch or _mismatch_of(rows)
    for number in range(first, len(hands)):
        epoch, hand = hands[number]
        step_started = time.perf_counter()
        seed_step(job.request.seed, job.request.iteration, number, rank.rank)
        share = _rate_share(job, steps_before + number)
        rate = config.learning_rate * share
        figures = optimizer_step(
            engines.policy, engines.critic, config, samples, hand, prepared, rate, longest_response, share,
            job.samples.imitated[number % steps :: steps],
        )  # fmt: skip
        seconds = time.perf_counter() - step_started
        # Only before the first step are the weights those that sampled: its mismatch is the iteration's.
        first_mismatch = first_mismatch or _mismatch_of([figures])
        rows.append(
            {
                "iteration": job.request.iteration,
                "step": steps_before + number,
                "epoch": epoch,
                **figures,
                **first_mismatch,
                "learning_rate": rate,
                "seconds": seconds,
                **throughput(
                    engines.policy, [samples[row] for row in hand], seconds, rank.world_size, figures["shared_fraction"]
                ),
                **_counts(job),
                "preparation_s": prepared_s,
            }
        )
        due = config.save_interval is not None and (number + 1) % config.save_interval == 0
        if job.interim is not None and due and number + 1 < len(hands):
            keep, metric = config.keep_checkpoints, config.best_metric
            with job.interim.save(rank.rank, rows, number + 1, keep, metric) as folder:
                engines.save(folder)
                if rank.rank == 0:
                    save_prepared(prepared, folder)
        yield {
            "done": number + 1,
            "total": len(hands),
            "steps": rows[told:],
            **{name: rows[-1][name] for name in ("loss", "kl", "entropy", "gradient_norm", "tokens_per_s")},
        }
        told = len(rows)
    _keep(rank, job, engines)
    yield {"rows": rows, "known": hand_over(job.folder)}


def _hands(job: UpdateJob) -> list[tuple[int, list[int]]]:
    """Return the epoch and the samples of each optimizer step."""
    config, request = job.config, job.request
    return [
        (epoch, hand)
        for epoch in range(config.epochs)
        for hand in deal_groups(job.samples.samples, config.optimizer_steps, (request.seed, request.iteration, epoch))
    ]


def _prepared(rank: RankContext, job: UpdateJob, engines: Engines, steps: int) -> Prepared:
    """Return the tensors that are fixed before the first of so many steps, or those of an interim checkpoint."""
    if job.resume is not None:
        return load_prepared(job.resume, job.samples.samples)
    reference = _reference(rank, job, engines.policy)
    return prepare(engines.policy, engines.critic, reference, job.samples, job.config, steps)


def _counts(job: UpdateJob) -> dict[str, int]:
    """Return the columns that say what the batch had; the same in each row."""
    samples = job.samples
    return {
        "groups_used": samples.groups_used,
        "groups_single": samples.groups_single,
        "groups_constant": samples.groups_constant,
        "groups_missing": samples.groups_missing,
        "problems_refilled": job.problems_refilled,
        "turns_excluded": samples.turns_excluded,
        "turns_overlong": samples.turns_overlong,
    }


def _keep(rank: RankContext, job: UpdateJob, engines: Engines) -> None:
    """Write the checkpoint, unless it is there, and hold the engines for the policy's next update."""
    config = job.config
    if not job.is_made_again:
        writes_state = config.optimizer_state and (job.request.writes_state or not stays_held(job))
        engines.save(job.folder, engines.tokenizer, writes_state)
    if config.optimizer_state:  # otherwise the next update begins with a new optimizer, as one that is resumed would
        rank.held[_held_as(job.request.roles)] = engines


def held_program(rank: RankContext, job: UpdateJob) -> Iterator[bool]:
    """Yield whether this rank holds the engines that the job begins with."""
    yield _holds(rank, job)


def adopt_program(rank: RankContext, published: tuple[str, tuple[str, ...]]) -> Iterator[None]:
    """Note the digest of the checkpoint that the held engine of these roles was published as.

    The next update starts from it.
    """
    digest, roles = published
    rank.held[f"{_held_as(roles)}: digest"] = digest
    yield


def _held_as(roles: tuple[str, ...]) -> str:
    """Return the name under which a rank holds the engines of a policy that writes for these roles."""
    return " ".join(("update", *roles))


def stays_held(job: UpdateJob) -> bool:
    """True if the ranks will hold these engines at the policy's next update: they are small, or nothing comes between.

    Every rank calls it, and all return the same.
    """
    if job.request.keeps_ranks:
        return True
    share = torch.tensor(held_share(), device="cuda" if torch.cuda.is_available() else "cpu")
    torch.distributed.all_reduce(share, torch.distributed.ReduceOp.MAX)
    return float(share) <= SMALL_SHARE


def deal_groups(samples: Sequence[Sample], steps: int, seed: Sequence[int]) -> list[list[int]]:
    """Deal whole groups out to at most `steps` optimizer steps, with numbers of samples as even as can be.

    Deterministic in `seed`, whatever order the samples come in. Fewer groups than steps give fewer steps.
    """
    rows_of: dict[GroupKey, list[int]] = {}
    for row, sample in enumerate(samples):
        rows_of.setdefault(sample.group, []).append(row)
    keys = sorted(rows_of)
    shuffled = [keys[place] for place in np.random.default_rng(list(seed)).permutation(len(keys))]
    hands: list[list[int]] = [[] for _ in range(min(steps, len(keys)))]
    for key in sorted(shuffled, key=lambda key: -len(rows_of[key])):  # stable: equal sizes stay shuffled
        min(hands, key=len).extend(rows_of[key])
    return hands


def _rate_share(job: UpdateJob, step: int) -> float:
    """Return the schedule's share of the peak rate at a step, counted over the whole run."""
    config = job.config
    return learning_rate(
        step,
        job.request.total_iterations * config.optimizer_steps * config.epochs,
        1.0,
        warmup_steps=config.warmup_steps,
        final_fraction=1.0 if config.schedule == "constant" else config.final_learning_rate_fraction,
    )


def _mismatch_of(rows: list[dict[str, Any]]) -> dict[str, float]:
    return {name: value for name, value in rows[0].items() if name.startswith("mismatch_")} if rows else {}


def seed_step(seed: int, iteration: int, step: int, rank: int) -> None:
    """Set torch's random state as a function of where training is, and of nothing that came before."""
    torch.manual_seed(int(np.random.SeedSequence([seed, iteration, step, rank]).generate_state(1)[0]))


def _engines(rank: RankContext, job: UpdateJob) -> Engines:
    """Return the engines that already hold the policy, or load them from its checkpoint. Both are equal to the bit."""
    settings = engine_settings(job.config, job.dtype)
    is_held = _holds(rank, job)
    held: Engines | None = rank.held.pop(_held_as(job.request.roles), None)
    rank.held.pop(f"{_held_as(job.request.roles)}: digest", None)  # from here on the held weights are nobody's
    if held is not None and is_held:
        return held
    del held
    if job.needs_state and job.resume is None:
        raise InfrastructureError(
            f"{job.request.policy.path}: the ranks do not hold the optimizer's state of this policy any more"
        )
    source = job.resume or job.request.policy.path
    if settings.lora is None or job.base is None:
        model = load_policy(source, job.dtype)
    else:
        from tasks.training.lora import add_adapters, load_adapter  # PEFT takes two seconds to import

        model = load_policy(job.base.uri, job.dtype)
        add_adapters(model, settings.lora, job.request.seed)
        load_adapter(model, source)
    policy = PolicyEngine(model, settings)
    restore_optimizer(policy, source)
    critic = None
    if job.config.estimator.critic:
        stored = source / CRITIC_FOLDER
        origin = stored if stored.is_dir() else job.config.critic.pretrained or job.request.policy.path
        critic = CriticEngine(load_critic(origin, job.dtype), critic_settings(job.config, job.dtype))
        restore_optimizer(critic, stored)
    return Engines(policy, critic, load_tokenizer(job.request.policy.path), job.base)


def _holds(rank: RankContext, job: UpdateJob) -> bool:
    held: Engines | None = rank.held.get(_held_as(job.request.roles))
    digest = rank.held.get(f"{_held_as(job.request.roles)}: digest")
    is_that_policy = digest == job.request.policy.digest and job.resume is None
    return held is not None and is_that_policy and _fits(held, job, engine_settings(job.config, job.dtype))


def _fits(held: Engines, job: UpdateJob, settings: EngineSettings) -> bool:
    wanted = critic_settings(job.config, job.dtype) if job.config.estimator.critic else None
    found = None if held.critic is None else held.critic.settings
    return held.policy.settings == settings and held.base == job.base and found == wanted


def _reference(rank: RankContext, job: UpdateJob, policy: PolicyEngine) -> Scorer | None:
    """Return the reference's scorer: the policy without its adapters if that is the reference; else a second model."""
    reference = job.request.reference
    if reference is None or job.config.kl_coefficient == 0:
        return None
    if job.base is not None and job.base.digest == reference.digest:
        return lambda batch: _without_adapters(policy, batch)
    settings = policy.settings
    if rank.held.get("reference_of") != (reference.digest, settings):
        model = load_policy(reference.path, job.dtype).to(policy.device)  # pyright: ignore[reportArgumentType]
        prepare_model(model, settings.model_copy(update={"compile": False}), policy.group)
        rank.held["reference"] = TokenScorer(model.eval(), settings.head)
        rank.held["reference_of"] = (reference.digest, settings)
    scorer = rank.held["reference"]
    return lambda batch: score(scorer, batch, policy.group)[0]


def _without_adapters(policy: PolicyEngine, batch: MicroBatch) -> torch.Tensor:
    from tasks.training.lora import adapters_off

    with adapters_off(policy.model):
        return policy.score(batch)[0]
