"""Supervised fine-tuning as a program that each rank runs: what `tasks.sft.train` starts on `tasks.training.ranks`.

Yields progress dicts (`done`, `total`, figures, rows of the `steps` since) a few times a second, and at last the rows
of `metrics.parquet` with the digests of what was written (tasks.training.metrics.record). Every `save_interval` steps
the validation loss is measured and rank 0 publishes `step-<n>` in the work folder: policy and optimizer state. The
newest ones and the best one stay (tasks.training.retention).
"""

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tasks.models.config import ModelConfig
from tasks.models.policy import load_policy, new_policy
from tasks.models.tokenizer import load_tokenizer
from tasks.pipeline.digests import hand_over
from tasks.pipeline.store import MANIFEST
from tasks.sft.config import SftConfig
from tasks.sft.conversations import SftSequences, step_rows
from tasks.training.adapter_files import ADAPTER_FOLDER, AdapterBase
from tasks.training.batches import MicroBatch, TrainedSequence
from tasks.training.checkpoint import OPTIMIZER_FILE, restore_optimizer, save_optimizer, save_weights
from tasks.training.config import EngineConfig
from tasks.training.engine import PolicyEngine, engine_settings
from tasks.training.program import RankContext, learning_rate
from tasks.training.retention import ROWS_FILE, Interim, best_place

_PROGRESS_INTERVAL_S = 0.3


@dataclass(frozen=True)
class SftJob:
    """Everything that one SFT run needs; the same on every rank."""

    sequences: SftSequences
    tokenizer: Path
    model: ModelConfig
    initial: Path | None
    """A policy to go on from; none: a new model, or the pretrained one."""
    config: SftConfig
    engine: EngineConfig
    seed: int
    interim: Interim
    folder: Path
    """Folder in which rank 0 writes the policy."""

    @property
    def origin(self) -> Path | str | None:
        """Weights that training starts from; none: new ones."""
        return self.initial or self.model.pretrained

    @property
    def adapter_base(self) -> AdapterBase | None:
        """The model that adapters are trained on; none: all weights are trained."""
        if self.config.lora is None:
            return None
        return AdapterBase(uri=str(self.origin), digest="", lora=self.config.lora)


def sft_program(rank: RankContext, job: SftJob) -> Iterator[dict[str, Any]]:
    """Train and write the policy. A generator: see the module's docstring."""
    rank.held.clear()
    tokenizer = load_tokenizer(job.tokenizer)
    engine = _engine(job, tokenizer)
    config, training = job.config, job.sequences.training
    rows = list(job.interim.rows)
    if job.interim.resume is not None:
        restore_optimizer(engine, job.interim.resume)
    total = config.steps_for(len(training))
    reported, told = time.perf_counter(), 0
    for step in range(job.interim.steps, total):
        if config.early_stop is not None and _best_validation(rows)[1] >= config.early_stop:
            break
        started = time.perf_counter()
        rate = _rate(config, step, total)
        chosen, epoch = step_rows(step, config.batch_size, len(training), job.seed)
        sequences = [training[row] for row in chosen]
        loss, norm, trained_tokens = _optimizer_step(engine, sequences, job.engine.tokens_per_rank, rate)
        tokens = sum(sequence.length for sequence in sequences)
        last = step + 1 == total
        saving = (step + 1) % config.save_interval == 0 and not last
        validation = _validation_loss(engine, job) if saving or last else None
        seconds = time.perf_counter() - started
        rows.append(
            {
                "step": step,
                "epoch": epoch,
                "loss": loss,
                "validation_loss": validation,
                "gradient_norm": norm,
                "learning_rate": rate,
                "tokens": tokens,
                "trained_tokens": trained_tokens,
                "token_budget": job.engine.tokens_per_rank,
                "seconds": seconds,
                "tokens_per_s": tokens / seconds,
            }
        )
        if saving:
            metric = "validation_loss" if config.early_stop is not None else config.best_metric
            with job.interim.save(rank.rank, rows, step + 1, job.engine.keep_checkpoints, metric) as folder:
                save_weights(engine, tokenizer, folder, job.adapter_base)
                save_optimizer(engine, folder)
        if last or time.perf_counter() - reported > _PROGRESS_INTERVAL_S:
            reported = time.perf_counter()
            yield {
                "done": step + 1,
                "total": total,
                "steps": rows[told:],
                "loss": loss,
                "tokens_per_s": tokens / seconds,
            }
            told = len(rows)
    best_step = rows[-1]["step"] if config.early_stop is None else _best_validation(rows)[0]
    if best_step == rows[-1]["step"]:
        save_weights(engine, tokenizer, job.folder)
    elif rank.rank == 0:
        _copy_policy(job.interim.after(best_step + 1), job.folder)
    yield {"rows": rows, "known": hand_over(job.folder)}


def _rate(config: SftConfig, step: int, total: int) -> float:
    """Return the learning rate of a step; it falls over `sft.decay_steps`, or over all steps."""
    return learning_rate(
        step,
        config.decay_steps or total,
        config.learning_rate,
        warmup_steps=config.warmup_steps,
        final_fraction=config.final_learning_rate_fraction,
    )


def _copy_policy(interim: Path, folder: Path) -> None:
    """Copy the policy of an interim checkpoint, and nothing that only training needs."""
    not_the_policys = shutil.ignore_patterns(Path(OPTIMIZER_FILE).parts[0], ADAPTER_FOLDER, ROWS_FILE, MANIFEST)
    shutil.copytree(interim, folder, ignore=not_the_policys, dirs_exist_ok=True)


def _best_validation(rows: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """Return the step of the best validation and the number of those since; without any, the last step and 0.

    Computed from the rows: a resumed run stops at the same step.
    """
    validated = [row for row in rows if row["validation_loss"] is not None]
    best = best_place([row["validation_loss"] for row in validated], "validation_loss")
    return (
        (rows[-1]["step"] if rows else 0, 0) if best is None else (validated[best]["step"], len(validated) - 1 - best)
    )


def _engine(job: SftJob, tokenizer: Any) -> PolicyEngine:
    config = job.config
    model = _model(job, tokenizer)
    settings = engine_settings(
        job.engine,
        job.model.dtype,
        betas=config.betas,
        weight_decay=config.weight_decay,
        gradient_clip=config.gradient_clip,
        lora=config.lora,
        compile=config.compile or job.engine.compile,
    )
    return PolicyEngine(model, settings)


def _model(job: SftJob, tokenizer: Any) -> PreTrainedModel:
    """Return the model to train; with adapters on what training started from, never on merged weights."""
    resume = job.interim.resume
    if job.config.lora is None or job.origin is None:
        source = resume or job.origin
        return new_policy(job.model, tokenizer, job.seed) if source is None else load_policy(source, job.model.dtype)
    from tasks.training.lora import add_adapters, load_adapter  # PEFT takes two seconds to import

    model = load_policy(job.origin, job.model.dtype)
    add_adapters(model, job.config.lora, job.seed)
    if resume is not None:
        load_adapter(model, resume)
    return model


def _optimizer_step(
    engine: PolicyEngine, sequences: Sequence[TrainedSequence], token_budget: int, rate: float
) -> tuple[float, float, int]:
    """Train on the sequences of all ranks. Returns (mean loss a trained token, gradient norm, trained tokens)."""
    normaliser = max(sum(int(sequence.trained[1:].sum()) for sequence in sequences), 1)
    batches = engine.micro_batches(sequences, token_budget)
    total = torch.zeros((), dtype=torch.float64, device=engine.device)
    for number, batch in enumerate(batches):
        loss = _loss(engine, batch) / normaliser
        total += loss.detach()
        engine.backward(loss, last=number == len(batches) - 1)
    norm = engine.step(rate)
    return float(engine.sum_over_ranks(total)), norm, normaliser


def _loss(engine: PolicyEngine, batch: MicroBatch) -> Tensor:
    """Negative log-likelihood of the trained tokens, summed over those that count in the mask."""
    log_probs, _ = engine.score(batch)
    return -(batch.unflatten(log_probs) * batch.mask).sum()


def _validation_loss(engine: PolicyEngine, job: SftJob) -> float | None:
    """Return the mean loss a token on the conversations set aside; None if there are none."""
    sequences = job.sequences.validation
    if not sequences:
        return None
    total = torch.zeros(2, dtype=torch.float64, device=engine.device)
    with torch.no_grad():
        for batch in engine.micro_batches(sequences, job.engine.tokens_per_rank):
            total += torch.stack([_loss(engine, batch), batch.mask.sum()])
    loss, tokens = engine.sum_over_ranks(total).tolist()
    return loss / tokens
