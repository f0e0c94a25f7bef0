"""The problem set as a Prefect task."""

from tasks.pipeline.references import ProblemSetRef
from tasks.pipeline.stage import Stage, stage_task
from tasks.problems.config import ProblemsConfig


@stage_task(
    "problems",
    code="tasks.problems.problem_set",
    label="problem set",
    detail="{config.source}, up to {config.train} + {config.heldout}",
)
def make_problem_set(stage: Stage, config: ProblemsConfig) -> ProblemSetRef:
    """Load or generate the problems, split them, and publish the set."""
    from tasks.problems.problem_set import build_problem_set

    return build_problem_set(config, stage.destination, stage.progress)
