"""The whole loop: SFT, then reinforcement learning on the judge's verdicts, with held-out evaluation before and after.

From Python: `from flows.training import training; training(config)`. It starts a Prefect server and Ray if needed and
ends them again. Called again after a kill, it resumes the run.
"""

from pathlib import Path

from prefect import flow

from flows.lanes import run_iterations
from flows.problems import started_run
from flows.rejection_control import evaluate_rejection_control
from flows.report import publish_run_report
from flows.run.prefect_ui import name_of
from flows.run.run import startup_s
from flows.services.environment import set_defaults
from flows.services.prefect_server import prefect_server
from flows.settings.configuration import RunConfig
from flows.sft import run_sft
from flows.sft_control import evaluate_sft_control


@flow(name="training", flow_run_name=name_of("training"))
def training_flow(config: RunConfig, overrides: tuple[str, ...] = ()) -> str:
    """Run the whole loop: SFT, RL iterations, held-out evaluation before and after, report. Return the run's folder."""
    with started_run(config, overrides) as (run, problems):
        run_iterations(run, problems, run_sft(run, problems, rolls_out_next=True))
        if run.config.control and run.config.iterations:
            evaluate_sft_control(run, problems)
        if run.config.rejection_control and run.config.iterations:
            evaluate_rejection_control(run, problems)
        return publish_run_report(run)


def training(config: RunConfig) -> Path:
    """Run `training_flow`, with a new Prefect server if none answers; return the run's folder."""
    set_defaults()
    with prefect_server(Path(config.runs_dir), start_s=config.prefect.start_timeout_s) as server:
        startup_s.set(server.startup_s)
        return Path(training_flow(config))
