"""One update, asked for in a line."""

from pathlib import Path
from typing import Any

from tasks.pipeline.references import CheckpointRef, Progress, TrajectoryBatchRef
from tasks.update.config import UpdateConfig
from tasks.update.request import UpdateRequest
from tasks.update.train import update_policy as update_as_requested


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
    **others: Any,
) -> CheckpointRef:
    """Make one update. `others`: further fields of its request."""
    request = UpdateRequest(
        policy=policy,
        reference=reference,
        batch=batch,
        config=config,
        iteration=iteration,
        total_iterations=total_iterations,
        seed=seed,
        **others,
    )
    return update_as_requested(request, destination, progress, work_dir)
