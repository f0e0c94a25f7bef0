"""Checks between stages as Prefect tasks. Each returns the reference that it checked: a flow reads as a chain."""

from kernels_eval.rewards import RewardText
from tasks.pipeline.references import CheckpointRef, ProblemSetRef, SftDataRef, TrajectoryBatchRef
from tasks.pipeline.stage import Stage, stage_task
from tasks.validation.config import ValidationConfig

_QUARANTINE = {
    "SFT data": "sft",
    "pairs of repairs": "repairs",
    "pairs of the joint epoch": "joint",
    "pairs of rejection sampling": "rejection",
}
"""By name of the pairs: the folder of those that are put aside."""


def quarantine_folder(name: str) -> str:
    """Return the folder of pairs that are put aside, by their name, such as `pairs of rejection sampling, round 2`."""
    kind, _, number = name.partition(", ")
    return "-".join([_QUARANTINE[kind], *number.split()])


@stage_task("validate_problems", code="tasks.validation.checks", label="check of the problem set")
def check_problems(stage: Stage, problems: ProblemSetRef, config: ValidationConfig) -> ProblemSetRef:
    """Stop the flow if the problem set breaks an expectation."""
    from tasks.validation.checks import validate_problems

    return validate_problems(problems, config, stage.docs_dir)


@stage_task("validate_sft_data", code="tasks.validation.checks", label="check of the {name}", ignored=("name",))
def check_sft_data(
    stage: Stage, data: SftDataRef, config: ValidationConfig, reward: RewardText, name: str = "SFT data"
) -> SftDataRef:
    """Return the SFT pairs without those that break an expectation; stop the flow if there are too many.

    `name`: of the data, in the stage's label.
    """
    from tasks.validation.checks import validate_sft_pairs

    quarantine = stage.workspace.runs_dir / "quarantine" / f"run_id={stage.workspace.run_id}" / quarantine_folder(name)
    return validate_sft_pairs(data, config, reward, stage.destination, quarantine, stage.docs_dir)


@stage_task("validate_trajectories", code="tasks.validation.checks", label="check of rollout {iteration}")
def publish_checked(
    stage: Stage, raw: TrajectoryBatchRef, config: ValidationConfig, gamma: float, reward: RewardText, iteration: int
) -> TrajectoryBatchRef:
    """Publish the good trajectories of a raw batch, quarantine the bad ones, stop the flow if there are too many."""
    from tasks.validation.checks import validate_trajectories

    partition = f"run_id={stage.workspace.run_id}/iteration={iteration}"
    return validate_trajectories(
        raw,
        config,
        gamma,
        reward,
        stage.workspace.runs_dir / "trajectories" / partition,
        stage.workspace.runs_dir / "quarantine" / partition,
        stage.docs_dir,
    )


@stage_task(
    "validate_update",
    code="tasks.validation.checks",
    label="check of update {iteration}{of}",
    ignored=("iteration", "of"),
)
def check_update(
    stage: Stage, policy: CheckpointRef, config: ValidationConfig, iteration: int, of: str = ""
) -> CheckpointRef:
    """Stop the flow if the update's metrics break an expectation. `of`: end of the stage's label."""
    from tasks.validation.checks import validate_update_metrics

    return validate_update_metrics(policy, config, stage.docs_dir)
