"""Held-out evaluation as a Prefect task."""

from tasks.evaluation.config import EvaluationConfig
from tasks.orchestration import Stage, stage_task
from tasks.references import EvaluationRef, ProblemSetRef, TrajectoryBatchRef


@stage_task(
    "evaluation", code="tasks.evaluation.evaluate", label="evaluation of policy {version}", ignored=("version",)
)
def evaluate(
    stage: Stage, batch: TrajectoryBatchRef, problems: ProblemSetRef, config: EvaluationConfig, version: int
) -> EvaluationRef:
    """Measure a policy by its trajectories on the held-out problems."""
    from tasks.evaluation.evaluate import evaluate_policy

    return evaluate_policy(batch, problems, config, stage.destination)
