"""Summary, report and experiment tracking of a run."""

from pathlib import Path

from prefect import flow

from flows.run.prefect_ui import name_of
from flows.run.run import Run, open_run
from flows.run.state import RunState, check_evaluations
from flows.settings.configuration import RunConfig
from kernels_eval.errors import InputError
from tasks.evaluation.summary import HeldoutEvaluations, IterationEntry, ReportInputs
from tasks.evaluation.task import publish_report
from tasks.pipeline.store import read_metadata
from tasks.tracking.task import track


def publish_run_report(run: Run) -> str:
    """Write summary.json and report.html from everything that the run has so far; return the run's folder."""
    inputs = _report_inputs(run)
    if run.is_reported(inputs):
        run.workspace.tell(lambda listener: listener.finished("report", 0.0, cached=True))
        return str(run.run_dir)
    links = {} if run.tracking is None else track(run.tracking, run.run_dir, inputs)
    publish_report(run.workspace, inputs.model_copy(update={"links": links}))
    run.mark_reported(inputs)
    return str(run.run_dir)


@flow(name="report", flow_run_name=name_of("policy"))
def report_flow(config: RunConfig) -> str:
    """Write the report of a run again."""
    with open_run(config) as run:
        return publish_run_report(run)


def check_evaluated(config: RunConfig, run_dir: Path, state: RunState) -> None:
    """Raise InputError if the run has no evaluation yet of the policy before RL, or a damaged one."""
    has_data = state.sft_data is not None or config.sft.is_left_out
    if state.problems is None or not has_data or not state.policies or not state.evaluations:
        raise InputError(f"{run_dir}: nothing to report yet; run `kernelmill train` or `kernelmill evaluate` first")
    if 0 not in state.evaluations:
        raise InputError(f"{run_dir}: policy 0, the one before RL, is not evaluated; `kernelmill train` evaluates it")
    check_evaluations(state)


def _report_inputs(run: Run) -> ReportInputs:
    """Return the inputs of the report. Raises InputError as `check_evaluated` does."""
    state = run.state
    check_evaluated(run.config, run.run_dir, state)
    assert state.problems is not None
    versions, greedy = sorted(state.evaluations), state.greedy_evaluations
    control = state.control if state.control is not None and state.control.after == versions[-1] else None
    rejection = state.rejection if state.rejection is not None and state.rejection.after == versions[-1] else None
    seconds: dict[str, float] = {}
    for timing in state.timings.values():
        if timing.seconds == 0:
            continue  # start of the driver: overhead only
        seconds[timing.stage] = round(seconds.get(timing.stage, 0.0) + timing.seconds, 3)
    return ReportInputs(
        run_id=run.workspace.run_id,
        configuration=run.config.model_dump(mode="json"),
        problems=state.problems,
        sft_data=None if run.config.sft.is_left_out else state.sft_data,
        sft=state.policies[0],
        repair_pairs=state.repair_pairs,
        joint_batch=state.joint_batch,
        joint_pairs=state.joint_pairs,
        iterations=tuple(
            IterationEntry(
                iteration=version,
                trajectories=batch,
                checkpoint=state.policies[version + 1],
                quarantined=int(read_metadata(batch.path).get("quarantined", 0)),
            )
            for version, batch in sorted(state.batches.items())
            if version + 1 in state.policies
        ),
        sampled=HeldoutEvaluations(
            before=state.evaluations[versions[0]],
            after=state.evaluations[versions[-1]],
            control=None if control is None else control.evaluation,
            rejection=None if rejection is None else rejection.evaluation,
            between={version: state.evaluations[version] for version in versions[1:-1]},
        ),
        greedy=HeldoutEvaluations(
            before=greedy[versions[0]],
            after=greedy[versions[-1]],
            control=None if control is None else control.greedy_evaluation,
            rejection=None if rejection is None else rejection.greedy_evaluation,
            between={version: greedy[version] for version in versions[1:-1] if version in greedy},
        )
        if versions[0] in greedy and versions[-1] in greedy
        else None,
        evaluation_config=run.config.evaluation,
        judged={} if rejection is None else {"rl": rejection.judged_by_rl, "rejection": rejection.judged},
        digests=state.digests,
        stage_seconds=seconds,
        overhead_seconds=round(sum(timing.overhead_s for timing in state.timings.values()), 3),
        wall_seconds=state.wall_seconds or None,
        data_docs={
            folder.name.replace("-", " "): f"data_docs/{folder.name}/index.html"
            for folder in sorted((run.run_dir / "data_docs").glob("*"))
        },
    )
