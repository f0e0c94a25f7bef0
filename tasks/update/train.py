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
from tasks.pipeline.references import CheckpointRef, Progress
from tasks.pipeline.store import digest_of, measured, publish, published_digest
from tasks.pipeline.tables import METRICS_FILE
from tasks.rollout.curriculum import MANIFEST_KEY, record_of
from tasks.rollout.refill import refill_record
from tasks.training.adapter_files import base_of
from tasks.training.config import check_adapters, check_heads
from tasks.training.faults import with_smaller_batches
from tasks.training.metrics import OnSteps, record, unseen
from tasks.training.ranks import make_room, replace_ranks, run_on_ranks
from tasks.training.retention import find_interim, has_weights
from tasks.update.config import UpdateConfig
from tasks.update.dataset import read_samples
from tasks.update.past import check_past, lacks_state
from tasks.update.program import UpdateJob, adopt_program, held_program, update_program
from tasks.update.request import UpdateRequest

_LOGGER = logging.getLogger("kernelmill.update")
_SAME = 1e-3
_MOST_REJECTED = 0.5
"""Share of tokens that `update.correction` leaves out, from which on it is said."""


def update_policy(
    request: UpdateRequest,
    destination: Path,
    progress: Progress,
    work_dir: Path | None = None,
    on_steps: OnSteps = unseen,
) -> CheckpointRef:
    """Make one update and publish the next policy in `destination`.

    The optimizer (and the critic, if there is one) goes on from the state beside the policy, if any.
    `work_dir` holds interim checkpoints where `update.save_interval` asks for them.

    Raises InputError for input that cannot be trained on (see tasks.update.dataset), a policy without its optimizer's
    state and no past, a reference of another architecture, or a missing reference if KL has weight;
    InfrastructureError if a rank dies.
    """
    config, policy, reference, past = request.config, request.policy, request.reference, request.past
    _check_policies(request)
    vocabulary = int(architecture_of(policy.path)["vocab_size"])
    samples = read_samples(request.batch, config, vocabulary=vocabulary, roles=request.roles)
    metadata: dict[str, Any] = {"policy": policy.digest, "batch": request.batch.digest, "iteration": request.iteration}
    decisive = [
        metadata, reference and reference.digest, decisive_part(config),
        request.total_iterations, request.seed, *request.roles,
    ]  # fmt: skip
    fingerprint = digest_of(decisive)
    refilled = refill_record(request.batch)
    curriculum = record_of(request.batch)
    if curriculum is not None:
        metadata[MANIFEST_KEY] = curriculum.model_dump(mode="json")
    job = UpdateJob(
        request=request,
        dtype=dtype_of(policy.path),
        samples=samples,
        folder=destination,
        base=None if config.lora is None else base_of(policy, config.lora),
        interim=find_interim(work_dir / "interim", fingerprint) if work_dir and config.save_interval else None,
        problems_refilled=0 if refilled is None else refilled.further,
        needs_state=config.optimizer_state and lacks_state(policy),
    )
    if job.needs_state and not past:  # said before a worker starts: there is nothing to make again
        check_past(policy, past)
    shares_gpu = bool(request.roles) and config.gpus_per_rank > 0
    if (job.needs_state or shares_gpu) and not all(run_on_ranks(config, held_program, job)):
        if shares_gpu:
            make_room(config)  # the engine of another agent may leave too little for this one
        if job.needs_state and job.resume is None:
            _make_again(job)
    with publish(destination, metadata, {METRICS_FILE: measured}) as folder:

        def run(resources: UpdateConfig) -> Iterator[dict[str, Any]]:
            interim = job.interim and find_interim(job.interim.folder, fingerprint)  # those of a first try may be there
            return run_on_ranks(resources, update_program, replace(job.on(resources), folder=folder, interim=interim))

        record(with_smaller_batches(config, run), folder, progress, on_steps)
    if work_dir is not None:
        shutil.rmtree(work_dir / "interim", ignore_errors=True)
    _warn_of_rejected(destination, request.iteration)
    digest = published_digest(destination)
    if not config.optimizer_state:  # the next update loads its weights anew
        replace_ranks(config)
    else:
        list(run_on_ranks(config, adopt_program, (digest, request.roles)))
    return CheckpointRef(uri=str(destination), digest=digest, weight_version=policy.weight_version + 1)


def _check_policies(request: UpdateRequest) -> None:
    """Raise InputError unless the policy can be trained as configured, from where it is, beside its reference."""
    config, policy, reference = request.config, request.policy, request.reference
    if config.kl_coefficient > 0 and reference is None:
        raise InputError("update.kl_coefficient: above 0, but no reference policy was given; give one or set 0")
    if not has_weights(policy):
        raise InputError(
            f"{policy.path}: the weights of this policy were removed; begin at one whose weight version is a multiple "
            "of update.weights_interval, or at the newest"
        )
    if reference is not None:
        check_same_architecture(reference.path, policy.path)
    shape = architecture_of(policy.path)
    heads = shape["num_attention_heads"]
    check_heads(heads, shape["num_key_value_heads"] or heads, config.context_parallel)
    check_adapters(config.lora, shape.get("num_experts", 0))


def _warn_of_rejected(folder: Path, iteration: int) -> None:
    """Say so if most tokens were left out: an engine whose log-probabilities are not the policy's teaches nothing."""
    metrics = pl.read_parquet(folder / METRICS_FILE)
    share = metrics["rejected_fraction"].mean() if "rejected_fraction" in metrics.columns else None
    if isinstance(share, float) and share > _MOST_REJECTED:
        _LOGGER.warning(
            "update %d: %.0f%% of the answers' tokens were left out by update.correction: the log-probabilities of the "
            "engine that sampled them are not this policy's",
            iteration, 100 * share,
        )  # fmt: skip


def _make_again(job: UpdateJob) -> None:
    """Make the updates that led to a policy again, so that the ranks hold its optimizer's state; nothing is written."""
    request, past = job.request, job.request.past
    check_past(request.policy, past)
    ends = [update.policy for update in past[1:]] + [request.policy]
    for update, end in zip(past, ends, strict=True):
        _LOGGER.warning(
            "update %d is made again: the optimizer's state of policy %d was not written (update.checkpoint_interval)",
            update.iteration, end.weight_version,
        )  # fmt: skip
        vocabulary = int(architecture_of(update.policy.path)["vocab_size"])
        changes = {"policy": update.policy, "batch": update.batch, "iteration": update.iteration}
        again = replace(
            job,
            request=request.model_copy(update=changes),
            samples=read_samples(update.batch, request.config, vocabulary=vocabulary, roles=request.roles),
            interim=None,
            needs_state=lacks_state(update.policy),
            is_made_again=True,
        )
        *_, last = with_smaller_batches(
            request.config,
            lambda resources, again=again: run_on_ranks(resources, update_program, again.on(resources)),
        )
        list(run_on_ranks(request.config, adopt_program, (end.digest, request.roles)))
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
