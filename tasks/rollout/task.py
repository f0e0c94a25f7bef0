"""Rollouts as a Prefect task."""

from kernels_eval.config import JudgeConfig
from tasks.orchestration import Stage, stage_task
from tasks.references import CheckpointRef, ProblemSetRef, TrajectoryBatchRef
from tasks.rollout.config import RolloutConfig


@stage_task("rollout", code="tasks.rollout.collect", label="rollout {iteration} ({split})")
def roll_out(
    stage: Stage,
    policy: CheckpointRef,
    problems: ProblemSetRef,
    split: str,
    config: RolloutConfig,
    judge: JudgeConfig,
    iteration: int,
    seed: int,
) -> TrajectoryBatchRef:
    """Let the policy write kernels for problems of the split, have them judged, and publish the raw trajectories."""
    from tasks.rollout.collect import collect_trajectories

    return collect_trajectories(
        policy,
        problems,
        split,
        config,
        judge,
        stage.workspace.run_id,
        iteration,
        seed,
        stage.destination,
        stage.progress,
    )
