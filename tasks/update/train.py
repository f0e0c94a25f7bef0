"""The policy update: from a policy and a validated batch of trajectories to the next checkpoint.

Published folder: the policy in Hugging Face format, `optimizer/state.safetensors` (tasks.training.checkpoint), and
`metrics.parquet` with one row an optimizer step; its manifest names the policy and the batch that it comes from, and
the curriculum's state (tasks.rollout.curriculum). Input is checked before a worker starts.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernels_eval.errors import InputError
from kernels_eval.frozen import decisive_part
from tasks.models.policy import architecture_of, check_same_architecture, dtype_of
from tasks.pipeline.references import CheckpointRef, Progress, TrajectoryBatchRef
from tasks.pipeline.store import digest_of, measured, publish, published_digest, read_manifest
from tasks.pipeline.tables import METRICS_FILE
from tasks.rollout.curriculum import MANIFEST_KEY, record_of
from tasks.rollout.refill import refill_record
from tasks.training.config import check_heads
from tasks.training.faults import with_smaller_batches
from tasks.training.metrics import record
from tasks.training.ranks import replace_ranks, run_on_ranks
from tasks.training.retention import find_interim
from tasks.update.config import UpdateConfig
from tasks.update.dataset import read_samples
from tasks.update.program import UpdateJob, adopt_program, update_program


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
) -> CheckpointRef:
    """Update `policy` on `batch` and publish the result; `iteration` counts from 0.

    The optimizer (and the critic, if there is one) goes on from the state beside the policy, if any.
    `work_dir` holds interim checkpoints where `update.save_interval` asks for them. Raises InputError for input that
    cannot be trained on (see tasks.update.dataset), a policy without its optimizer's state, a reference of another
    architecture, or a missing reference if KL has weight; InfrastructureError if a rank dies.
    """
    if config.kl_coefficient > 0 and reference is None:
        raise InputError("update.kl_coefficient: above 0, but no reference policy was given; give one or set 0")
    if (read_manifest(policy.path) or {}).get("discarded"):
        raise InputError(
            f"{policy.path}: the optimizer's state of this policy was removed, and nothing can go on from it as "
            "before; begin at one whose weight version is a multiple of update.checkpoint_interval, or at the newest"
        )
    if reference is not None:
        check_same_architecture(reference.path, policy.path)
    dtype = dtype_of(policy.path)
    shape = architecture_of(policy.path)
    heads = shape["num_attention_heads"]
    check_heads(heads, shape["num_key_value_heads"] or heads, config.context_parallel)
    samples = read_samples(batch, config, vocabulary=int(shape["vocab_size"]))
    base = None
    if config.lora is not None:
        from tasks.training.lora import base_of  # PEFT takes two seconds to import

        base = base_of(policy, config.lora)
    metadata: dict[str, Any] = {"policy": policy.digest, "batch": batch.digest, "iteration": iteration}
    decisive = [metadata, reference and reference.digest, decisive_part(config), total_iterations, seed]
    fingerprint = digest_of(decisive)
    refilled = refill_record(batch)
    curriculum = record_of(batch)
    if curriculum is not None:
        metadata[MANIFEST_KEY] = curriculum.model_dump(mode="json")
    with publish(destination, metadata, {METRICS_FILE: measured}) as folder:

        def run(resources: UpdateConfig) -> Iterator[dict[str, Any]]:
            job = UpdateJob(
                policy=policy,
                reference=reference,
                dtype=dtype,
                samples=samples,
                config=resources,
                iteration=iteration,
                total_iterations=total_iterations,
                seed=seed,
                folder=folder,
                base=base,
                interim=find_interim(work_dir / "interim", fingerprint) if work_dir and config.save_interval else None,
                problems_refilled=0 if refilled is None else refilled.further,
            )
            return run_on_ranks(resources, update_program, job)

        record(with_smaller_batches(config, run), folder, progress)
    if work_dir is not None:
        shutil.rmtree(work_dir / "interim", ignore_errors=True)
    digest = published_digest(destination)
    if config.optimizer_state:
        list(run_on_ranks(config, adopt_program, digest))
    else:  # the next update loads the weights anew
        replace_ranks(config)
    return CheckpointRef(uri=str(destination), digest=digest, weight_version=policy.weight_version + 1)
