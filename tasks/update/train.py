"""The policy update: from a policy and a validated batch of trajectories to the next checkpoint.

Published folder: the policy in Hugging Face format, `optimizer/state.safetensors` (tasks.training.checkpoint), and
`metrics.parquet` with one row an optimizer step; its manifest names the policy and the batch that it comes from, and
the curriculum's state (tasks.rollout.curriculum). Input is checked before a worker starts.
"""

import logging
import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from kernels_eval.errors import InputError
from kernels_eval.frozen import decisive_part
from tasks.models.policy import architecture_of, check_same_architecture, dtype_of
from tasks.pipeline.references import CheckpointRef, Progress, TrajectoryBatchRef
from tasks.pipeline.store import digest_of, measured, publish, published_digest
from tasks.pipeline.tables import METRICS_FILE
from tasks.rollout.curriculum import MANIFEST_KEY, record_of
from tasks.rollout.refill import refill_record
from tasks.training.adapter_files import base_of
from tasks.training.config import check_adapters, check_heads
from tasks.training.faults import with_smaller_batches
from tasks.training.metrics import record
from tasks.training.ranks import make_room, replace_ranks, run_on_ranks
from tasks.training.retention import find_interim, has_weights
from tasks.update.config import UpdateConfig
from tasks.update.dataset import read_samples
from tasks.update.past import PastUpdate, check_past, lacks_state
from tasks.update.program import UpdateJob, adopt_program, held_program, update_program

_LOGGER = logging.getLogger("kernelmill.update")
_SAME = 1e-3


def update_policy(
    policy: CheckpointRef,
    reference: CheckpointRef | None,
    batch: TrajectoryBatchRef,
    config: UpdateConfig,
    iteration: int,
    total_iterations: int,
    seed: int,
    destination: Path,
    progress: Progress,
    work_dir: Path | None = None,
    writes_state: bool = True,
    past: tuple[PastUpdate, ...] = (),
    roles: tuple[str, ...] = (),
    keeps_ranks: bool = True,
) -> CheckpointRef:
    """Update `policy` on `batch` and publish the result; `iteration` counts from 0.

    `roles`: of the agents that this policy writes for, whose turns it learns from; all if empty.

    The optimizer (and the critic, if there is one) goes on from the state beside the policy, if any.
    `work_dir` holds interim checkpoints where `update.save_interval` asks for them. `writes_state`: the optimizer's
    state as well, if `update.optimizer_state` says so. `past`: updates to make again if the ranks do not hold the
    state of a policy that was published without it. `keeps_ranks`: the next update on these ranks goes on from this
    one. Else the state is written in any case, unless this engine is small enough to stay beside another agent's.

    Raises InputError for input that cannot be trained on (see tasks.update.dataset), a policy without its optimizer's
    state and no past, a reference of another architecture, or a missing reference if KL has weight;
    InfrastructureError if a rank dies.
    """
    if config.kl_coefficient > 0 and reference is None:
        raise InputError("update.kl_coefficient: above 0, but no reference policy was given; give one or set 0")
    if not has_weights(policy):
        raise InputError(
            f"{policy.path}: the weights of this policy were removed; begin at one whose weight version is a multiple "
            "of update.weights_interval, or at the newest"
        )
    if reference is not None:
        check_same_architecture(reference.path, policy.path)
    dtype = dtype_of(policy.path)
    shape = architecture_of(policy.path)
    heads = shape["num_attention_heads"]
    check_heads(heads, shape["num_key_value_heads"] or heads, config.context_parallel)
    check_adapters(config.lora, shape.get("num_experts", 0))
    samples = read_samples(batch, config, vocabulary=int(shape["vocab_size"]), roles=roles)
    base = None if config.lora is None else base_of(policy, config.lora)
    metadata: dict[str, Any] = {"policy": policy.digest, "batch": batch.digest, "iteration": iteration}
    decisive = [metadata, reference and reference.digest, decisive_part(config), total_iterations, seed, *roles]
    fingerprint = digest_of(decisive)
    refilled = refill_record(batch)
    curriculum = record_of(batch)
    if curriculum is not None:
        metadata[MANIFEST_KEY] = curriculum.model_dump(mode="json")
    job = UpdateJob(
        policy=policy,
        reference=reference,
        dtype=dtype,
        samples=samples,
        config=config,
        iteration=iteration,
        total_iterations=total_iterations,
        seed=seed,
        folder=destination,
        base=base,
        interim=find_interim(work_dir / "interim", fingerprint) if work_dir and config.save_interval else None,
        problems_refilled=0 if refilled is None else refilled.further,
        writes_state=writes_state and config.optimizer_state,
        needs_state=config.optimizer_state and lacks_state(policy),
        roles=roles,
        keeps_ranks=keeps_ranks,
    )
    if job.needs_state and not past:  # said before a worker starts: there is nothing to make again
        check_past(policy, past)
    shares_gpu = bool(roles) and config.gpus_per_rank > 0
    if (job.needs_state or shares_gpu) and not all(run_on_ranks(config, held_program, job)):
        if shares_gpu:
            make_room(config)  # the engine of another agent may leave too little for this one
        if job.needs_state and job.resume is None:
            _make_again(job, past)
    with publish(destination, metadata, {METRICS_FILE: measured}) as folder:

        def run(resources: UpdateConfig) -> Iterator[dict[str, Any]]:
            interim = job.interim and find_interim(job.interim.folder, fingerprint)  # those of a first try may be there
            return run_on_ranks(
                resources, update_program, replace(job, config=resources, folder=folder, interim=interim)
            )

        record(with_smaller_batches(config, run), folder, progress)
    if work_dir is not None:
        shutil.rmtree(work_dir / "interim", ignore_errors=True)
    digest = published_digest(destination)
    if not config.optimizer_state:  # the next update loads its weights anew
        replace_ranks(config)
    else:
        list(run_on_ranks(config, adopt_program, (digest, roles)))
    return CheckpointRef(uri=str(destination), digest=digest, weight_version=policy.weight_version + 1)


def _make_again(job: UpdateJob, past: tuple[PastUpdate, ...]) -> None:
    """Make the updates that led to a policy again, so that the ranks hold its optimizer's state; nothing is written."""
    check_past(job.policy, past)
    ends = [update.policy for update in past[1:]] + [job.policy]
    for update, end in zip(past, ends, strict=True):
        number = update.iteration
        _LOGGER.warning(
            "update %d is made again: the optimizer's state of policy %d was not written (update.checkpoint_interval)",
            number, end.weight_version,
        )  # fmt: skip
        vocabulary = int(architecture_of(update.policy.path)["vocab_size"])
        again = replace(
            job,
            policy=update.policy,
            samples=read_samples(update.batch, job.config, vocabulary=vocabulary, roles=job.roles),
            iteration=number,
            interim=None,
            needs_state=lacks_state(update.policy),
            is_made_again=True,
        )
        *_, last = with_smaller_batches(
            job.config,
            lambda resources, again=again: run_on_ranks(resources, update_program, replace(again, config=resources)),
        )
        list(run_on_ranks(job.config, adopt_program, (end.digest, job.roles)))
        _compare(last["rows"], end)


def _compare(rows: list[dict[str, Any]], policy: CheckpointRef) -> None:
    """Say so if an update that was made again differs from the first time, as kernels on a GPU may."""
    before = pl.read_parquet(policy.path / METRICS_FILE).to_dicts()
    for row, earlier in zip(rows, before, strict=True):
        for name in ("loss", "gradient_norm"):
            if not math.isclose(row[name], earlier[name], rel_tol=_SAME, abs_tol=1e-9):
                _LOGGER.warning(
                    "policy %d, step %d: %s %.6g, %.6g the first time",
                    policy.weight_version, row["step"], name, row[name], earlier[name],
                )  # fmt: skip
