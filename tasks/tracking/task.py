"""Experiment tracking of a whole run as a Prefect task: one W&B run a stage, from what the run has published."""

from pathlib import Path

from prefect import task
from prefect.context import FlowRunContext

from tasks.evaluation.summary import ReportInputs
from tasks.tracking.config import TrackingConfig


@task(name="tracking", task_run_name="tracking: W&B", persist_result=False)
def track(config: TrackingConfig, run_dir: Path, series: str, inputs: ReportInputs) -> dict[str, str]:
    """Log SFT, updates and evaluations; return title and address of each W&B run."""
    if config.mode == "disabled":
        return {}
    from tasks.tracking.wandb_run import TrackedStage, log_evaluation, log_metrics, tracked

    context = FlowRunContext.get()
    flow_run = context.flow_run if context else None

    def stage(name: str) -> TrackedStage:
        return TrackedStage(
            run_id=inputs.run_id,
            stage=name,
            series=series,
            directory=str(run_dir),
            configuration=inputs.configuration,
            orchestration={} if flow_run is None else {"prefect_flow_run_id": str(flow_run.id)},
        )

    links: dict[str, str] = {}
    if inputs.sft_data is not None:
        with tracked(config, stage("sft")) as tracker:
            log_metrics(tracker, inputs.sft, "sft")
            links["W&B: sft"] = tracker.address or ""
    with tracked(config, stage("update")) as tracker:
        step = 0
        for entry in inputs.iterations:
            step = log_metrics(tracker, entry.checkpoint, "update", step)
        links["W&B: update"] = tracker.address or ""
    with tracked(config, stage("evaluation")) as tracker:
        log_evaluation(tracker, inputs.sampled.before, 0)
        if inputs.greedy is not None:
            log_evaluation(tracker, inputs.greedy.before, 0, "heldout_greedy")
        log_evaluation(tracker, inputs.sampled.after, len(inputs.iterations))
        if inputs.greedy is not None:
            log_evaluation(tracker, inputs.greedy.after, len(inputs.iterations), "heldout_greedy")
        links["W&B: evaluation"] = tracker.address or ""
    return {title: address for title, address in links.items() if address}
