"""Held-out evaluation and the report as Prefect tasks."""

import time

from prefect import task

from tasks.evaluation.config import EvaluationConfig
from tasks.evaluation.inputs import ReportInputs
from tasks.orchestration import Stage, Workspace, stage_task
from tasks.references import EvaluationRef, ProblemSetRef, TrajectoryBatchRef


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
        from tasks import artifacts
        from tasks.evaluation.report import write_report
        from tasks.evaluation.summary import write_summary

        summary = write_summary(workspace.run_dir, inputs)
        artifacts.publish_report(workspace.run_id, write_report(workspace.run_dir, inputs, summary), summary)

    workspace.listener.started("report")
    began = time.perf_counter()
    report()
    workspace.listener.finished("report", time.perf_counter() - began, cached=False)
