"""Tracking of a run at its end, as a Prefect task: logs what was not logged while the run went on."""

from pathlib import Path

from prefect import task
from prefect.context import FlowRunContext

from tasks.evaluation.summary import ReportInputs
from tasks.tracking.config import TrackingConfig
from tasks.tracking.figures import read_lines
from tasks.tracking.live import LiveTracking
from tasks.tracking.wandb_run import TrackedRun


def live_tracking(config: TrackingConfig, run_dir: Path, series: str, configuration: dict[str, object]) -> LiveTracking:
    """Return the tracking of a run that a driver has opened."""
    context = FlowRunContext.get()
    flow_run = context.flow_run if context else None
    tracked = TrackedRun(
        run_id=run_dir.name,
        series=series,
        directory=str(run_dir),
        configuration=configuration,
        orchestration={} if flow_run is None else {"prefect_flow_run_id": str(flow_run.id)},
    )
    return LiveTracking(config, tracked)


def track(tracking: LiveTracking, run_dir: Path, inputs: ReportInputs) -> dict[str, str]:
    """Log the figures that were not logged yet, and each optimizer step; return title and address of the W&B run."""

    def work() -> None:
        for line in read_lines(run_dir):
            tracking.log_line(line)
        if inputs.sft_data is not None:
            tracking.log_metrics(inputs.sft)
        for entry in inputs.iterations:
            tracking.log_metrics(entry.checkpoint)
        tracking.finish()

    task(name="tracking", task_run_name="tracking: W&B", persist_result=False)(work)()
    return {"W&B": tracking.address} if tracking.address else {}
