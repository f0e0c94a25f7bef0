"""Held-out evaluation and the report as Prefect tasks."""

import time
from typing import TYPE_CHECKING

from prefect import task

from tasks.evaluation.config import EvaluationConfig
from tasks.evaluation.inputs import ReportInputs
from tasks.pipeline.references import EvaluationRef, ProblemSetRef, TrajectoryBatchRef
from tasks.pipeline.stage import Stage, Workspace, stage_task
from tasks.pipeline.store import digest_of

if TYPE_CHECKING:
    from tasks.evaluation.comparison import Measured


@stage_task("evaluation", code="tasks.evaluation.evaluate", label="evaluation of {name}", ignored=("name",))
def evaluate(
    stage: Stage, batch: TrajectoryBatchRef, problems: ProblemSetRef, config: EvaluationConfig, name: str
) -> EvaluationRef:
    """Measure a policy by its trajectories on the held-out problems."""
    from tasks.evaluation.evaluate import evaluate_policy

    return evaluate_policy(batch, problems, config, stage.destination)


def publish_report(workspace: Workspace, inputs: ReportInputs) -> None:
    """Write summary.json and report.html into the run's folder, and link them in Prefect's UI."""

    @task(name="report", task_run_name="report", persist_result=False)
    def report() -> None:
        from tasks.evaluation.report import write_report
        from tasks.evaluation.summary import write_summary
        from tasks.pipeline import artifacts

        summary = write_summary(workspace.run_dir, inputs)
        pages = {f"Data Docs: {title}": str(workspace.run_dir / page) for title, page in inputs.data_docs.items()}
        report = write_report(workspace.run_dir, inputs, summary)
        artifacts.publish_report(workspace.run_id, report, summary, {**inputs.links, **pages})

    workspace.listener.started("report")
    began = time.perf_counter()
    report()
    workspace.listener.finished("report", time.perf_counter() - began, cached=False)


def publish_comparison(workspace: Workspace, measured: "tuple[Measured, ...]", config: EvaluationConfig) -> str:
    """Write the comparison of several policies into the run's folder, show it in Prefect's UI, and return its folder.

    `runs/<run id>/comparisons/<digest of the evaluations>`: the same comparison again has the same place.
    """
    identity = digest_of([[entry.name, entry.evaluation.digest] for entry in measured])
    folder = workspace.run_dir / "comparisons" / identity

    @task(name="comparison", task_run_name="comparison", persist_result=False)
    def comparison() -> None:
        from tasks.evaluation.comparison import write_comparison
        from tasks.pipeline import artifacts

        artifacts.publish_comparison(workspace.run_id, folder, write_comparison(folder, measured, config))

    workspace.listener.started("comparison")
    began = time.perf_counter()
    comparison()
    workspace.listener.finished("comparison", time.perf_counter() - began, cached=False)
    return str(folder)
