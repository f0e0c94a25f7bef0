"""The problem set of a run, with which most flows begin."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from flows.checks.preflight import check_before_start
from flows.run.prefect_ui import announced_suspension
from flows.run.run import Run, open_run
from flows.settings.configuration import RunConfig, overridden
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
def started_run(
    config: RunConfig, overrides: Sequence[str] = (), for_pairs: bool = False
) -> Generator[tuple[Run, ProblemSetRef]]:
    """Check the configuration, open its run, new or resumed, and yield it with its problem set.

    for_pairs: SFT's pairs are made, and nothing is trained. overrides: `a.b=value`, the settings in which a run of a
    deployment differs from the deployment's configuration.
    """
    config = overridden(config, overrides)
    check_before_start(config, for_pairs=for_pairs)
    with announced_suspension(), open_run(config, for_pairs=for_pairs) as run:
        yield run, prepare_problems(run)
