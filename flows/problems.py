"""The problem set of a run, made and checked."""

from flows.run.run import Run
from tasks.pipeline.references import ProblemSetRef
from tasks.problems.task import make_problem_set
from tasks.validation.task import check_problems


def prepare_problems(run: Run) -> ProblemSetRef:
    """Return the run's problem set, split into train and held-out, and checked."""
    problems = make_problem_set(run.workspace, run.config.problems)
    problems = check_problems(run.workspace, problems, run.config.validation)
    run.note(problems=problems)
    return problems
