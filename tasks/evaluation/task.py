"""Held-out evaluation and the report as Prefect tasks."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefect import task

from tasks.evaluation.config import EvaluationConfig
from tasks.evaluation.summary import ReportInputs
from tasks.pipeline.references import EvaluationRef, ProblemSetRef, TrajectoryBatchRef
from tasks.pipeline.stage import Stage, Workspace, stage_task
from tasks.pipeline.store import digest_of

if TYPE_CHECKING:
    from tasks.evaluation.comparison import Measured

_POLICIES = {
    "before": "before RL",
    "after": "after RL",
    "control": "control: more SFT",
    "rejection": "control: rejection sampling",
}


@stage_task("evaluation", code="tasks.evaluation.evaluate", label="evaluation of {name}", ignored=("name",))
def evaluate(
    stage: Stage, batch: TrajectoryBatchRef, problems: ProblemSetRef, config: EvaluationConfig, name: str
) -> EvaluationRef:
    """Measure a policy by its trajectories on the held-out problems."""
    from tasks.evaluation.evaluate import evaluate_policy

    return evaluate_policy(batch, problems, config, stage.destination)


def publish_report(workspace: Workspace, inputs: ReportInputs) -> None:
    """Write summary.json and report.html into the run's folder, and link them in Prefect's UI."""

    def report() -> None:
        from tasks.evaluation.report.page import write_report
        from tasks.evaluation.summary import write_summary

        summary = write_summary(workspace.run_dir, inputs)
        pages = {f"Data Docs: {title}": str(workspace.run_dir / page) for title, page in inputs.data_docs.items()}
        report = write_report(workspace.run_dir, inputs, summary)
        show_report(workspace.run_id, report, summary, {**inputs.links, **pages})

    _run_uncached(workspace, "report", report)


def publish_comparison(workspace: Workspace, measured: "tuple[Measured, ...]", config: EvaluationConfig) -> str:
    """Write a comparison to `runs/<run id>/comparisons/<digest>`, show it in Prefect's UI, and return its folder."""
    identity = digest_of([[entry.name, entry.evaluation.digest] for entry in measured])
    folder = workspace.run_dir / "comparisons" / identity

    def comparison() -> None:
        from tasks.evaluation.comparison import write_comparison

        show_comparison(workspace.run_id, folder, write_comparison(folder, measured, config))

    _run_uncached(workspace, "comparison", comparison)
    return str(folder)


def _run_uncached(workspace: Workspace, name: str, work: Callable[[], None]) -> None:
    workspace.tell(lambda listener: listener.started(name))
    began = time.perf_counter()
    task(name=name, task_run_name=name, persist_result=False)(work)()
    seconds = time.perf_counter() - began
    workspace.tell(lambda listener: listener.finished(name, seconds, cached=False))


def show_report(run_id: str, path: Path, summary: Mapping[str, Any], links: Mapping[str, str]) -> None:
    """Show figures and report of a run in Prefect's UI. `links`: title and address of further pages."""
    from tasks.pipeline.prefect_artifacts import publish

    heldout = summary["heldout"]
    mark = " Speeds are estimates (roofline)." if summary.get("timing_source") == "roofline" else ""
    rows = {"report": str(path), "figures": str(path.with_name("summary.json")), **links}
    text = f"## Report of {run_id}\n\n{heldout['n']} held-out problems.{mark}\n\n| | |\n|---|---|\n"
    text += "".join(f"| {title} | {_linked(address)} |\n" for title, address in rows.items())
    publish(run_id, "report-link", path, f"Report of {run_id}")
    publish(run_id, "report", text, f"Report of {run_id}")
    description = f"{heldout['n']} held-out problems before and after RL.{mark}"
    publish(run_id, "heldout", heldout_rows(heldout), description)
    if greedy := summary.get("heldout_greedy"):
        publish(run_id, "heldout-greedy", heldout_rows(greedy), f"{description} Greedy answers.")


def heldout_rows(heldout: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one row a figure of `heldout` in summary.json: each policy, and the paired differences with intervals."""
    from tasks.pipeline.prefect_artifacts import with_interval

    over, rejection = heldout.get("over_control"), heldout.get("over_rejection")
    figures = [name for name in heldout["before"] if f"{name}_ci" in heldout["before"]]
    return [
        {
            "figure": name,
            **{title: with_interval(heldout[key], name) for key, title in _POLICIES.items() if key in heldout},
            "change by RL": with_interval(heldout, f"delta_{name}", "+.3f"),
            **({"after RL against more SFT": with_interval(over, f"delta_{name}", "+.3f")} if over else {}),
            **(
                {"after RL against rejection sampling": with_interval(rejection, f"delta_{name}", "+.3f")}
                if rejection
                else {}
            ),
        }
        for name in figures
    ]


def show_comparison(run_id: str, folder: Path, comparison: dict[str, Any]) -> None:
    """Show several policies side by side, and the path of the page about them, in Prefect's UI."""
    from tasks.evaluation.comparison import PAGE_FILE, table_rows
    from tasks.pipeline.prefect_artifacts import publish

    names = ", ".join(policy["name"] for policy in comparison["policies"])
    mark = " Speeds are estimates (roofline)." if comparison["timing_source"] == "roofline" else ""
    page = (folder / PAGE_FILE).resolve()
    text = f"## {names}\n\n{comparison['n']} held-out problems, paired.{mark} Page: `{page}`\n"
    publish(run_id, "comparison", text, f"Comparison of {names}")
    publish(run_id, "comparison-figures", table_rows(comparison), f"{names}.{mark}")


def _linked(address: str) -> str:
    """Return an address as Markdown: a page of the web, or a file or folder of this machine."""
    if address.startswith(("http://", "https://")):
        return f"[{address}]({address})"
    path = Path(address).resolve()
    return f"[`{path}`]({path.as_uri()})"
