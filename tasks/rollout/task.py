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
    split = Split.TRAIN
    return _collect(
        stage, policy, problems, split, config, judge, iteration, seed, curriculum=curriculum, refill=refill
    )


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
    run_id = f"{stage.workspace.run_id}-joint"  # ids of trajectories are unique in a run
    return _collect(stage, policy, problems, Split.TRAIN, config, judge, 0, seed, run_id)


@stage_task(
    "rejection_rollout",
    code="tasks.rollout.collect",
    label="rollout for rejection sampling",
    detail="{config.problems_per_iteration} of {problems.train} problems",
)
def play_for_rejection(
    stage: Stage,
    policy: CheckpointRef,
    problems: ProblemSetRef,
    config: RolloutConfig,
    judge: JudgeConfig,
    seed: int,
) -> TrajectoryBatchRef:
    """Let the policy that RL began with have as many conversations as RL had: the best kernels of them are learnt."""
    run_id = f"{stage.workspace.run_id}-rejection"  # ids of trajectories are unique in a run
    return _collect(stage, policy, problems, Split.TRAIN, config, judge, 0, seed, run_id)


@stage_task(
    "repair_rollout",
    code="tasks.rollout.collect",
    label="rollout for repairs",
    detail="{config.problems_per_iteration} of {problems.train} problems",
)
def answer_once(
    stage: Stage,
    policy: CheckpointRef,
    problems: ProblemSetRef,
    config: RolloutConfig,
    judge: JudgeConfig,
    seed: int,
) -> TrajectoryBatchRef:
    """Let the policy that SFT made answer training problems: its failures are what repairs start from."""
    run_id = f"{stage.workspace.run_id}-repairs"  # ids of trajectories are unique in a run
    return _collect(stage, policy, problems, Split.TRAIN, config, judge, 0, seed, run_id)


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
    return _collect(stage, policy, problems, Split.HELDOUT, config, judge, version, seed)


def _collect(
    stage: Stage,
    policy: CheckpointRef,
    problems: ProblemSetRef,
    split: Split,
    config: RolloutConfig,
    judge: JudgeConfig,
    iteration: int,
    seed: int,
    run_id: str = "",
    curriculum: CurriculumState | None = None,
    refill: Refill | None = None,
) -> TrajectoryBatchRef:
    """Have the rollout worker collect the trajectories of a stage. `run_id`: by default the run's."""
    from tasks.rollout.collect import collect_trajectories
    from tasks.rollout.worker import RolloutRequest

    request = RolloutRequest(
        policy=policy,
        problems=problems,
        split=split,
        config=config,
        judge=judge,
        iteration=iteration,
        seed=seed,
        run_id=run_id or stage.workspace.run_id,
        destination=stage.destination,
        curriculum=curriculum,
        refill=refill,
    )
    return collect_trajectories(request, stage.progress)
