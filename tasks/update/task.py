"""The policy update as a Prefect task."""

from tasks.pipeline.references import CheckpointRef, TrajectoryBatchRef
from tasks.pipeline.stage import Stage, stage_task
from tasks.update.config import UpdateConfig
from tasks.update.past import PastUpdate


@stage_task(
    "update",
    code="tasks.update.train",
    label="update {iteration}{of}",
    ignored=("writes_state", "past", "of", "keeps_ranks"),
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
    roles: tuple[str, ...] = (),
    of: str = "",
    keeps_ranks: bool = True,
) -> CheckpointRef:
    """Update the policy on one validated batch, and publish the next checkpoint.

    `roles`: of the agents whose turns it learns from; all if empty. Agents that have nothing to learn from this batch
    keep their policy. `of`: end of the stage's label. `keeps_ranks`: no other agent's update comes
    between this one and the next of the same policy.
    """
    from tasks.update.dataset import NothingToLearnError
    from tasks.update.train import update_policy

    try:
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
            roles,
            keeps_ranks,
        )
    except NothingToLearnError as error:
        if not roles:
            raise
        unchanged = f"update {iteration}{of}: {error}; its weights stay as they are"
        stage.workspace.tell(lambda listener: listener.warned(unchanged))
        return policy
