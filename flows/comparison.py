"""Two or more policies on the same held-out problems: SFT, single-turn RL, multi-turn RL, each against each."""

from prefect import flow

from flows.checks.preflight import check_before_start
from flows.evaluation import measure
from flows.problems import prepare_problems
from flows.run.names import name_of
from flows.run.policies import PolicyChoice, check_choices, policy_of
from flows.run.run import open_run
from flows.settings.configuration import RunConfig
from tasks.evaluation.comparison import Measured
from tasks.evaluation.task import publish_comparison


@flow(name="compare", flow_run_name=name_of("problems"))
def compare_flow(config: RunConfig, policies: tuple[PolicyChoice, ...]) -> str:
    """Measure each policy on every held-out problem of the configuration; return the folder of the comparison."""
    check_choices(policies)
    check_before_start(config)
    with open_run(config) as run:
        problems = prepare_problems(run)
        found = [(choice.name, policy_of(choice, run)) for choice in policies]
        measured = tuple(
            Measured(name=name, policy=policy, evaluation=measure(run, problems, policy, name))
            for name, policy in found
        )
        return publish_comparison(run.workspace, measured, config.evaluation)
