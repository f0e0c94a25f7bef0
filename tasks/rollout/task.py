"""Rollouts as a Prefect task."""

from kernels_eval.config import JudgeConfig
from tasks.pipeline.references import CheckpointRef, ProblemSetRef, TrajectoryBatchRef
from tasks.pipeline.stage import Stage, stage_task
from tasks.rollout.config import RolloutConfig
from tasks.rollout.curriculum import CurriculumState
from tasks.rollout.refill import Refill


@stage_task(
    "rollout",
    code="tasks.rollout.collect",
    label="rollout {iteration}",
    detail="policy {policy.weight_version} on {config.problems_per_iteration} of {problems.train} problems",
)
def roll_out(
    stage: Stage,
    policy: CheckpointRef,
    problems: ProblemSetRef,
    config: RolloutConfig,
    judge: JudgeConfig,
    iteration: int,
    seed: int,
    curriculum: CurriculumState | None = None,
    refill: Refill | None = None,
) -> TrajectoryBatchRef:
    """Let the policy write kernels for training problems, have them judged, and publish the raw trajectories."""
    from tasks.rollout.collect import collect_trajectories

    return collect_trajectories(
        policy,
        problems,
        "train",
        config,
        judge,
        stage.workspace.run_id,
        iteration,
        seed,
        stage.destination,
        stage.progress,
        curriculum,
        refill,
    )


@stage_task(
    "heldout_rollout",
    code="tasks.rollout.collect",
    label="held-out rollout of {name}",
    ignored=("name",),
    detail="{problems.heldout} problems",
)
def answer_heldout(
    stage: Stage,
    policy: CheckpointRef,
    problems: ProblemSetRef,
    config: RolloutConfig,
    judge: JudgeConfig,
    version: int,
    seed: int,
    name: str,
) -> TrajectoryBatchRef:
    """Let the policy write kernels for every held-out problem; nothing of this is ever trained on."""
    from tasks.rollout.collect import collect_trajectories

    return collect_trajectories(
        policy,
        problems,
        "heldout",
        config,
        judge,
        stage.workspace.run_id,
        version,
        seed,
        stage.destination,
        stage.progress,
    )
