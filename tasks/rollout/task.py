"""Rollouts as a Prefect task."""

from kernels_eval.config import JudgeConfig
from tasks.pipeline.references import CheckpointRef, ProblemSetRef, TrajectoryBatchRef
from tasks.pipeline.stage import Stage, stage_task
from tasks.problems.row import Split
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
    from tasks.rollout.worker import RolloutRequest

    request = RolloutRequest(
        policy=policy,
        problems=problems,
        split=Split.TRAIN,
        config=config,
        judge=judge,
        iteration=iteration,
        seed=seed,
        run_id=stage.workspace.run_id,
        destination=stage.destination,
        curriculum=curriculum,
        refill=refill,
    )
    return collect_trajectories(request, stage.progress)


@stage_task(
    "joint_rollout",
    code="tasks.rollout.collect",
    label="rollout for the joint epoch",
    detail="{config.problems_per_iteration} of {problems.train} problems",
)
def play_conversations(
    stage: Stage,
    policy: CheckpointRef,
    problems: ProblemSetRef,
    config: RolloutConfig,
    judge: JudgeConfig,
    seed: int,
) -> TrajectoryBatchRef:
    """Let the policy that SFT made solve training problems: what SFT goes on with, before the first iteration."""
    from tasks.rollout.collect import collect_trajectories
    from tasks.rollout.worker import RolloutRequest

    request = RolloutRequest(
        policy=policy,
        problems=problems,
        split=Split.TRAIN,
        config=config,
        judge=judge,
        iteration=0,
        seed=seed,
        run_id=f"{stage.workspace.run_id}-joint",  # ids of trajectories are unique in a run
        destination=stage.destination,
    )
    return collect_trajectories(request, stage.progress)


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
    from tasks.rollout.worker import RolloutRequest

    request = RolloutRequest(
        policy=policy,
        problems=problems,
        split=Split.HELDOUT,
        config=config,
        judge=judge,
        iteration=version,
        seed=seed,
        run_id=stage.workspace.run_id,
        destination=stage.destination,
    )
    return collect_trajectories(request, stage.progress)
