"""The problem set of a run."""

from flows.run.run import Run
from tasks.pipeline.references import ProblemSetRef
from tasks.problems.task import make_problem_set
from tasks.validation.task import check_problems


def prepare_problems(run: Run) -> ProblemSetRef:
    """Return the run's problem set, split into train and held-out, and validated."""
    problems = make_problem_set(run.workspace, run.config.problems)
    problems = check_problems(run.workspace, problems, run.config.validation)
    run.record(problems=problems)
    return problems
