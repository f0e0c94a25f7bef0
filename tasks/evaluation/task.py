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

    @task(name="report", persist_result=False)
    def report() -> None:
        from prefect.artifacts import create_link_artifact

        from tasks.evaluation.report import write_report
        from tasks.evaluation.summary import write_summary

        path = write_report(workspace.run_dir, inputs, write_summary(workspace.run_dir, inputs))
        create_link_artifact(path.resolve().as_uri(), key="report", link_text=f"Report of {workspace.run_id}")

    workspace.listener.started("report")
    began = time.perf_counter()
    report()
    workspace.listener.finished("report", time.perf_counter() - began, cached=False)
