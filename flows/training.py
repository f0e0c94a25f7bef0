"""The whole loop: SFT, then reinforcement learning on what the judge says, measured before and after.

From Python: `from flows.training import training; training(config)`. It starts what it needs (a Prefect server, Ray) and
ends it again; killed and called again, it goes on where it was.
"""

from pathlib import Path

from prefect import flow

from flows.checks.preflight import check_before_start
from flows.evaluation import examine
from flows.iteration import iterate
from flows.problems import prepare_problems
from flows.report import conclude
from flows.run.names import name_of
from flows.run.run import open_run, startup_s
from flows.services.environment import set_defaults
from flows.services.prefect_server import prefect_server
from flows.settings.configuration import RunConfig
from flows.sft import teach
from flows.sft_control import examine_control


@flow(name="training", flow_run_name=name_of("training"))
def training_flow(config: RunConfig) -> str:
    """Train a policy and return the run's folder."""
    check_before_start(config)
    with open_run(config) as run:
        problems = prepare_problems(run)
        policy = teach(run, problems)
        examine(run, problems, policy)
        for _ in range(config.iterations):
            policy = iterate(run, problems, policy)
        examine(run, problems, policy)
        if config.control and config.iterations:
            examine_control(run, problems)
        return conclude(run)


def training(config: RunConfig) -> Path:
    """Run `training_flow` with a Prefect server of its own where none answers; return the run's folder."""
    set_defaults()
    with prefect_server(Path(config.runs_dir)) as server:
        startup_s.set(server.startup_s)
        return Path(training_flow(config))
