"""Rollouts as a Prefect task."""

from kernels_eval.config import JudgeConfig
from tasks.pipeline.references import CheckpointRef, ProblemSetRef, TrajectoryBatchRef
from tasks.pipeline.stage import Stage, StageTask, stage_task
from tasks.problems.row import Split
from tasks.rollout.config import RolloutConfig
from tasks.rollout.curriculum import CurriculumState
from tasks.rollout.focus import FocusState
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
    focus: FocusState | None = None,
) -> TrajectoryBatchRef:
    """Let the policy write kernels for training problems, have them judged, and publish the raw trajectories."""
    return _collect(
        stage,
        policy,
        problems,
        Split.TRAIN,
        config,
        judge,
        iteration,
        seed,
        curriculum=curriculum,
        refill=refill,
        focus=focus,
    )


def _on_training_problems(name: str, purpose: str, ids: str) -> StageTask[..., TrajectoryBatchRef]:
    """Return a stage that lets a policy solve training problems apart from the iterations.

    `ids`: end of the run's name in the ids of trajectories, which are unique in a run.
    """

    def play(
        stage: Stage,
        policy: CheckpointRef,
        problems: ProblemSetRef,
        config: RolloutConfig,
        judge: JudgeConfig,
        seed: int,
    ) -> TrajectoryBatchRef:
        run_id = f"{stage.workspace.run_id}-{ids}"
        return _collect(stage, policy, problems, Split.TRAIN, config, judge, 0, seed, run_id)

    return stage_task(
        name,
        code="tasks.rollout.collect",
        label=f"rollout for {purpose}",
        detail="{config.problems_per_iteration} of {problems.train} problems",
    )(play)


play_conversations = _on_training_problems("joint_rollout", "the joint epoch", "joint")
"""Conversations of the policy that SFT made: SFT goes on with what they find, before the first iteration."""
play_for_rejection = _on_training_problems("rejection_rollout", "rejection sampling", "rejection")
"""Conversations of the policy that RL began with: the best kernels of them are learnt, in place of RL."""
answer_once = _on_training_problems("repair_rollout", "repairs", "repairs")
"""Answers of the policy that SFT made: its failures are what repairs start from."""


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
    focus: FocusState | None = None,
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
        focus=focus,
        kept=stage.work_dir,
    )
    return collect_trajectories(request, stage.progress)
