"""Comparison of two or more policies on the same held-out problems, e.g. SFT, single-turn RL and multi-turn RL; also of
models behind a server.
"""

from prefect import flow

from flows.evaluation import heldout_evaluations
from flows.problems import started_run
from flows.run.prefect_ui import name_of
from flows.run.state import PolicyChoice, check_choices, policy_of
from flows.settings.configuration import RunConfig
from tasks.evaluation.comparison import Measured
from tasks.evaluation.task import publish_comparison


@flow(name="compare", flow_run_name=name_of("problems"))
def compare_flow(config: RunConfig, policies: tuple[PolicyChoice, ...], overrides: tuple[str, ...] = ()) -> str:
    """Evaluate each policy on every held-out problem of the configuration; return the folder of the comparison."""
    check_choices(policies)
    for choice in policies:
        if choice.model is not None:
            choice.model.check_reachable()
    with started_run(config, overrides) as (run, problems):
        chosen = [(choice.name, choice.model or policy_of(choice, run.run_dir, run.config)) for choice in policies]
        measured: list[Measured] = []
        for name, policy in chosen:
            sampled, greedy = heldout_evaluations(run, problems, policy, name)
            measured.append(Measured(name=name, uri=policy.uri, evaluation=sampled, greedy=greedy))
        return publish_comparison(run.workspace, tuple(measured), run.config.evaluation)
