"""The problem set of a run, with which most flows begin."""

from collections.abc import Generator
from contextlib import contextmanager

from flows.checks.preflight import check_before_start
from flows.run.run import Run, open_run
from flows.settings.configuration import RunConfig
from tasks.pipeline.references import ProblemSetRef
from tasks.problems.task import make_problem_set
from tasks.validation.task import check_problems


def prepare_problems(run: Run) -> ProblemSetRef:
    """Return the run's problem set, split into train and held-out, and validated."""
    problems = make_problem_set(run.workspace, run.config.problems)
    problems = check_problems(run.workspace, problems, run.config.validation)
    run.record(problems=problems)
    return problems


@contextmanager
def started_run(config: RunConfig) -> Generator[tuple[Run, ProblemSetRef]]:
    """Check the configuration, open its run, new or resumed, and yield it with its problem set."""
    check_before_start(config)
    with open_run(config) as run:
        yield run, prepare_problems(run)
