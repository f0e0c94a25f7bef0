"""The policy update as a Prefect task."""

from tasks.pipeline.references import CheckpointRef, TrajectoryBatchRef
from tasks.pipeline.stage import Stage, stage_task
from tasks.update.config import UpdateConfig
from tasks.update.past import PastUpdate


@stage_task(
    "update",
    code="tasks.update.train",
    label="update {iteration}",
    ignored=("writes_state", "past"),
    detail="policy {policy.weight_version} on {batch.trajectories} trajectories",
)
def update(
    stage: Stage,
    policy: CheckpointRef,
    reference: CheckpointRef | None,
    batch: TrajectoryBatchRef,
    config: UpdateConfig,
    iteration: int,
    total_iterations: int,
    seed: int,
    writes_state: bool = True,
    past: tuple[PastUpdate, ...] = (),
) -> CheckpointRef:
    """Update the policy on one validated batch, and publish the next checkpoint."""
    from tasks.update.train import update_policy

    return update_policy(
        policy,
        reference,
        batch,
        config,
        iteration,
        total_iterations,
        seed,
        stage.destination,
        stage.progress,
        stage.work_dir,
        writes_state,
        past,
    )
