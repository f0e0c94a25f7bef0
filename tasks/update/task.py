"""The policy update as a Prefect task."""

from tasks.pipeline.references import CheckpointRef
from tasks.pipeline.stage import Stage, stage_task
from tasks.update.request import UpdateRequest


@stage_task(
    "update",
    code="tasks.update.train",
    label="update {iteration}{of}",
    detail="policy {policy.weight_version} on {batch.trajectories} trajectories",
)
def update(stage: Stage, request: UpdateRequest) -> CheckpointRef:
    """Update the policy on one validated batch, and publish the next checkpoint.

    An agent that has nothing to learn from this batch keeps its policy.
    """
    from tasks.update.dataset import NothingToLearnError
    from tasks.update.train import update_policy

    try:
        return update_policy(request, stage.destination, stage.progress, stage.work_dir, stage.on_steps)
    except NothingToLearnError as error:
        if not request.roles:
            raise
        unchanged = f"update {request.iteration}{request.of}: {error}; its weights stay as they are"
        stage.workspace.tell(lambda listener: listener.warned(unchanged))
        return request.policy
