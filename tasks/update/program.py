"""One RL update as a program that each rank runs: what `tasks.update.train` starts on `tasks.update.ranks`.

Yields a progress dict after each optimizer step (`done`, `total`, figures), and at last `{"rows": [...]}`, the rows of `metrics.parquet`.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed

from tasks.models.policy import load_policy
from tasks.models.tokenizer import load_tokenizer
from tasks.update.batches import MicroBatch, deal_to_ranks, make_micro_batch, plan_micro_batches
from tasks.update.config import UpdateConfig
from tasks.update.context import RankContext
from tasks.update.corrections import mismatch
from tasks.update.engine import EngineSettings, PolicyEngine
from tasks.update.losses import normaliser_of
from tasks.update.objective import SUMS, Targets, objective
from tasks.update.samples import Sample, SampleSet, deal_groups
from tasks.update.schedule import learning_rate
from tasks.update.scoring import TokenScorer, score
from tasks.update.state import restore_optimizer, save_optimizer, save_weights


@dataclass(frozen=True)
class UpdateJob:
    """Everything that one update needs; the same on every rank."""

    policy: Path
    policy_digest: str
    reference: Path | None
    reference_digest: str | None
    dtype: str
    samples: SampleSet
    config: UpdateConfig
    iteration: int
    total_iterations: int
    seed: int
    folder: Path
    """Where rank 0 writes the new checkpoint."""


@dataclass
class _Prepared:
    """A micro-batch with what its loss compares with."""

    batch: MicroBatch
    targets: Targets


def update_program(rank: RankContext, job: UpdateJob) -> Iterator[dict[str, Any]]:
    """Train the policy on the samples and write the checkpoint. A generator: see the module's docstring."""
    started = time.perf_counter()
    engine, tokenizer = _held_engine(rank, job)
    config, samples = job.config, job.samples.samples
    reference_log_probs = _reference_log_probs(rank, job, engine)
    prepared_s = time.perf_counter() - started
    steps_before = job.iteration * config.optimizer_steps * config.epochs
    total_steps = job.total_iterations * config.optimizer_steps * config.epochs
    hands = [
        (epoch, hand)
        for epoch in range(config.epochs)
        for hand in deal_groups(samples, config.optimizer_steps, (job.seed, job.iteration, epoch))
    ]
    rows: list[dict[str, Any]] = []
    first_mismatch: dict[str, float] = {}
    for number, (epoch, hand) in enumerate(hands):
        step_started = time.perf_counter()
        rate = learning_rate(
            steps_before + number,
            total_steps,
            config.learning_rate,
            warmup_steps=config.warmup_steps,
            final_fraction=1.0 if config.schedule == "constant" else config.final_learning_rate_fraction,
        )
        figures = _optimizer_step(rank, engine, config, [samples[row] for row in hand], reference_log_probs, hand, rate)
        seconds = time.perf_counter() - step_started
        if number == 0:
            first_mismatch = {name: figures[name] for name in figures if name.startswith("mismatch_")}
        rows.append(
            {
                "iteration": job.iteration,
                "step": steps_before + number,
                "epoch": epoch,
                **figures,
                # Only before the first step are the weights those that sampled: its mismatch is the iteration's.
                **first_mismatch,
                "learning_rate": rate,
                "seconds": seconds,
                "tokens_per_s": figures["tokens"] / seconds,
                "groups_used": job.samples.groups_used,
                "groups_single": job.samples.groups_single,
                "groups_constant": job.samples.groups_constant,
                "turns_excluded": job.samples.turns_excluded,
                "preparation_s": prepared_s,
            }
        )
        yield {
            "done": number + 1,
            "total": len(hands),
            "loss": figures["loss"],
            "kl": figures["kl"],
            "entropy": figures["entropy"],
            "gradient_norm": figures["gradient_norm"],
            "tokens_per_s": figures["tokens"] / seconds,
        }
    save_weights(engine, tokenizer, job.folder)
    save_optimizer(engine, job.folder)
    rank.held["update"] = (engine, tokenizer)
    yield {"rows": rows}


def adopt_program(rank: RankContext, digest: str) -> Iterator[None]:
    """Remember that the held engine is the published checkpoint of this digest, so that the next update starts from it."""
    rank.held["update_digest"] = digest
    yield


def engine_settings(config: UpdateConfig, dtype: str) -> EngineSettings:
    """Return what an engine is built from for RL."""
    return EngineSettings(
        betas=config.betas,
        weight_decay=config.weight_decay,
        gradient_clip=config.gradient_clip,
        zero_stage=config.zero_stage,
        deepspeed=config.deepspeed,
        dtype="bfloat16" if dtype == "bfloat16" else "float32",
    )


def _held_engine(rank: RankContext, job: UpdateJob) -> tuple[PolicyEngine, Any]:
    """Return the engine that already holds the policy, or one loaded from its checkpoint. Both are equal to the bit."""
    settings = engine_settings(job.config, job.dtype)
    held = rank.held.pop("update", None)
    digest = rank.held.pop("update_digest", None)  # from here on the held weights are nobody's
    if held is not None and digest == job.policy_digest and held[0].settings == settings:
        return held
    engine = PolicyEngine(load_policy(job.policy, job.dtype), settings)
    restore_optimizer(engine, job.policy)
    return engine, load_tokenizer(job.policy)


def _optimizer_step(
    rank: RankContext,
    engine: PolicyEngine,
    config: UpdateConfig,
    samples: Sequence[Sample],
    reference_log_probs: Sequence[Tensor] | None,
    rows: Sequence[int],
    rate: float,
) -> dict[str, float]:
    references = None if reference_log_probs is None else [reference_log_probs[row] for row in rows]
    mine = _prepare(rank, samples, references, config, engine.device)
    normaliser = _normaliser(samples, config)
    sums = torch.zeros(len(SUMS), dtype=torch.float64, device=engine.device)
    trained: list[tuple[Tensor, Tensor, Tensor]] = []
    for number, item in enumerate(mine):
        log_probs, entropies = engine.score(item.batch)
        loss, part = objective(item.batch, log_probs, entropies, item.targets, config, normaliser)
        engine.backward(loss, last=number == len(mine) - 1)
        sums += part
        trained.append((item.batch.unflatten(log_probs.detach()), item.targets.old_log_probs, item.batch.mask))
    norm = engine.step(rate)
    if rank.world_size > 1:
        distributed.all_reduce(sums)
    figures = dict(zip(SUMS, sums.tolist(), strict=True))
    response_tokens = max(figures.pop("tokens"), 1.0)
    advantages = np.array([sample.advantage for sample in samples])
    returns = np.array([sample.return_ for sample in samples])
    return {
        "loss": figures["loss"],
        "policy_loss": figures["policy_loss"],
        "kl": figures["kl"] / response_tokens,
        "entropy": figures["entropy"] / response_tokens,
        "clip_fraction": figures["clipped"] / response_tokens,
        "dual_clip_fraction": figures["clipped_dual"] / response_tokens,
        "old_kl": figures["old_kl"] / response_tokens,
        "gradient_norm": norm,
        "samples": len(samples),
        "tokens": sum(sample.sequence.length for sample in samples),
        "response_tokens": int(response_tokens),
        "advantage_mean": float(advantages.mean()),
        "advantage_std": float(advantages.std()),
        "advantage_min": float(advantages.min()),
        "advantage_max": float(advantages.max()),
        "return_mean": float(returns.mean()),
        **_mismatch(rank, trained),
    }


def _prepare(
    rank: RankContext,
    samples: Sequence[Sample],
    references: Sequence[Tensor] | None,
    config: UpdateConfig,
    device: torch.device,
) -> list[_Prepared]:
    """Return this rank's micro-batches; all ranks have equally many, the last ones without weight where need be."""
    sequences = [sample.sequence for sample in samples]
    lengths = [sequence.length for sequence in sequences]
    plans = [
        plan_micro_batches(lengths, share, config.tokens_per_rank) for share in deal_to_ranks(lengths, rank.world_size)
    ]
    prepared: list[_Prepared] = []
    for rows in plans[rank.rank]:
        batch = make_micro_batch(sequences, rows).to(device)
        flat_old = np.concatenate([samples[row].old_log_probs for row in rows])
        advantages = torch.tensor([samples[row].advantage for row in rows], dtype=torch.float32, device=device)
        reference = None if references is None else torch.cat([references[row] for row in rows]).to(device)
        prepared.append(
            _Prepared(
                batch,
                Targets(
                    old_log_probs=batch.unflatten(torch.from_numpy(flat_old).to(device)),
                    advantages=advantages[:, None] * batch.mask,
                    reference_log_probs=None if reference is None else batch.unflatten(reference),
                ),
            )
        )
    missing = max(len(plan) for plan in plans) - len(prepared)
    return prepared + [_weightless(samples[0], references is not None, device)] * missing


def _weightless(sample: Sample, with_reference: bool, device: torch.device) -> _Prepared:
    """A micro-batch that takes part in the collectives and adds nothing."""
    batch = make_micro_batch([sample.sequence], [0]).weightless().to(device)
    return _Prepared(batch, Targets(batch.mask, batch.mask, batch.mask if with_reference else None))


def _normaliser(samples: Sequence[Sample], config: UpdateConfig) -> float:
    lengths = torch.tensor([len(sample.old_log_probs) for sample in samples])
    mask = torch.arange(int(lengths.max()))[None, :] < lengths[:, None]
    return normaliser_of(mask, config.aggregation)


def _reference_log_probs(rank: RankContext, job: UpdateJob, engine: PolicyEngine) -> list[Tensor] | None:
    """Return the reference's log-probabilities of every sample's response [R_i], computed once an iteration, on the CPU."""
    if job.reference is None or job.config.kl_coefficient == 0:
        return None
    if rank.held.get("reference_digest") != job.reference_digest:
        model = load_policy(job.reference, job.dtype).to(engine.device)  # pyright: ignore[reportArgumentType]
        rank.held["reference"] = TokenScorer(model.eval())
        rank.held["reference_digest"] = job.reference_digest
    sequences = [sample.sequence for sample in job.samples.samples]
    lengths = [sequence.length for sequence in sequences]
    shares = deal_to_ranks(lengths, rank.world_size)
    result: dict[int, Tensor] = {}
    with torch.no_grad():
        for rows in plan_micro_batches(lengths, shares[rank.rank], job.config.tokens_per_rank):
            batch = make_micro_batch(sequences, rows).to(engine.device)
            log_probs, _ = score(rank.held["reference"], batch)
            result |= zip(rows, log_probs.cpu().split([int(n) for n in batch.mask.sum(1).tolist()]), strict=True)
    if rank.world_size > 1:
        parts: list[Any] = [None] * rank.world_size
        distributed.all_gather_object(parts, result)
        result = {row: value for part in parts for row, value in part.items()}
    return [result[row] for row in range(len(sequences))]


def _mismatch(rank: RankContext, trained: Sequence[tuple[Tensor, Tensor, Tensor]]) -> dict[str, float]:
    """How far this step's weights are from the sampler's on rank 0's share."""
    pairs = [(new[mask.bool()], old[mask.bool()]) for new, old, mask in trained]
    new, old = (torch.cat(column) for column in zip(*pairs, strict=True))
    return mismatch(new, old, torch.ones_like(new))
