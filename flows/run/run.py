"""One run, as its driver holds it open: folder, workspace of the stages, Ray, log, and a lock against a second driver.

runs/<run_id>/config.yaml      the resolved configuration
              state.json       references to everything made so far (flows.run.state)
              figures.jsonl    figures of each rollout, update and evaluation, as they come (tasks.tracking.figures)
              steps.jsonl      optimizer steps of SFT and updates, as they come (tasks.tracking.steps)
              log.txt          what Prefect and the stages logged
              checkpoints/     policy-000 (SFT), policy-001, … : links into the store
              trajectories/    iteration=0, … : links to the validated batches
              evaluations/     policy-000, policy-000-greedy, … : links to held-out evaluations
              summary.json, report.html
runs/latest                    link to the newest run
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from prefect.logging import get_run_logger
from prefect.settings import PREFECT_API_URL
from pydantic import BaseModel

from flows.capacity.planner import needs_of
from flows.run.lock import locked
from flows.run.log_file import logged_to
from flows.run.prefect_ui import LogListener, note_flow_run, tag_flow_run
from flows.run.state import ControlState, RejectionState, RunState, StageTiming, read_state, write_state
from flows.services.gpu_load import GpuLoad
from flows.services.gpus import GpuSlots
from flows.services.ray_cluster import RayCluster
from flows.services.server_end import server_awaited
from flows.services.server_events import events_kept
from flows.settings.configuration import LATEST, RunConfig, save_configuration
from kernels_eval.config import JudgeConfig
from kernels_eval.errors import InputError
from kernels_eval.frozen import normalised
from tasks.cluster.workers import stop_workers
from tasks.pipeline.artifact_queue import artifacts_sent
from tasks.pipeline.references import ArtifactRef, CheckpointRef, EvaluationRef, TrajectoryBatchRef, with_paths
from tasks.pipeline.stage import OptimizerSteps, StageListener, StageRecord, Workspace
from tasks.pipeline.store import digest_of
from tasks.pipeline.verdicts import with_kept_verdicts
from tasks.tracking.figures import FigureStage, record_figures
from tasks.tracking.live import LiveTracking
from tasks.tracking.steps import StepRecord, step_lines, steps_of, training_of
from tasks.tracking.task import live_tracking

if TYPE_CHECKING:
    from tasks.pipeline.shared_store import SharedStore

SignalHandler = Callable[[int, FrameType | None], Any] | int | None
listener: ContextVar[StageListener | None] = ContextVar("listener", default=None)
"""Further listener to the stages, set by the command line."""
refresh: ContextVar[frozenset[str]] = ContextVar("refresh", default=frozenset())
"""Stages to recompute even if they are cached."""
startup_s: ContextVar[float] = ContextVar("startup_s", default=0.0)
"""Seconds that the driver needed before the flow, for its Prefect server."""

on_sigterm: ContextVar[SignalHandler] = ContextVar("on_sigterm", default=None)
"""Handler of SIGTERM while a run is open, set by the command line. None: Prefect's, which a worker's runs need."""


@dataclass
class Run:
    """An open run."""

    config: RunConfig
    """A `megatron:` checkpoint in it is replaced by the folder that was made of it."""
    workspace: Workspace
    state: RunState
    began: float = 0.0
    """time.monotonic() at the start of this driver."""
    wall_before_s: float = 0.0
    """Wall seconds of earlier drivers."""
    counted: int = 0
    """Stages that this driver had computed when the wall seconds were last recorded."""
    tracking: LiveTracking | None = None
    """The run's W&B run; None if `tracking.mode` is disabled."""
    load: GpuLoad | None = None
    recording: threading.RLock = field(default_factory=threading.RLock)
    """Held while the run's records are written: two threads may have something to add."""

    @property
    def run_dir(self) -> Path:
        """`runs/<run_id>`."""
        return self.workspace.run_dir

    @cached_property
    def steps(self) -> StepRecord:
        """Record of the run's optimizer steps."""
        return StepRecord(self.run_dir)

    @property
    def judge(self) -> JudgeConfig:
        """The judge's settings. Verdicts of a CPU are kept in the folder of runs: no run judges a kernel again."""
        return with_kept_verdicts(self.config.judge, self.workspace.runs_dir)

    @property
    def rollout_judge(self) -> JudgeConfig:
        """Settings of the judge of answers that are trained on (`rollout.judge`)."""
        judge = self.config.rollout.judge.applied_to(self.config.judge)
        return with_kept_verdicts(judge, self.workspace.runs_dir)

    def add_policy(self, policy: CheckpointRef) -> CheckpointRef:
        """Record a new policy and link it."""
        with self.recording:
            self._link("checkpoints", f"policy-{policy.weight_version:03d}", policy)
            self.state = self.state.with_policy(policy, self.config.rollout.staleness)
            self.record()
            self.steps.add(steps_of(policy))  # those of a cached training
            if self.tracking is not None:
                self.tracking.log_metrics(policy)
            if policy.weight_version > 0:
                self._note_figures(policy.weight_version - 1, "update", policy)
        return policy

    def add_batch(self, batch: TrajectoryBatchRef, iteration: int) -> TrajectoryBatchRef:
        """Record a validated batch of training trajectories and link it."""
        with self.recording:
            self._link("trajectories", f"iteration={iteration}", batch)
            self.record(batches={**self.state.batches, iteration: batch})
            self._note_figures(iteration, "rollout", batch)
        return batch

    def add_evaluation(self, sampled: EvaluationRef, greedy: EvaluationRef | None, version: int) -> EvaluationRef:
        """Record a policy's held-out evaluations, link them, and return that of sampled answers."""
        with self.recording:
            self._link("evaluations", f"policy-{version:03d}", sampled)
            greedily = {old: ref for old, ref in self.state.greedy_evaluations.items() if old != version}
            if greedy is not None:
                self._link("evaluations", f"policy-{version:03d}-greedy", greedy)
                greedily[version] = greedy
            self.record(evaluations={**self.state.evaluations, version: sampled}, greedy_evaluations=greedily)
            self._note_figures(version, "evaluation", sampled)
            if greedy is not None:
                self._note_figures(version, "evaluation_greedy", greedy)
        return sampled

    def record_control(self, control: ControlState) -> None:
        """Record the progress of the SFT control, and link its policy and evaluation."""
        for folder, name, reference in (
            ("checkpoints", "control", control.policy),
            ("evaluations", "control", control.evaluation),
            ("evaluations", "control-greedy", control.greedy_evaluation),
        ):
            if reference is not None:
                self._link(folder, name, reference)
        self.record(control=control)

    def record_rejection(self, control: RejectionState) -> None:
        """Record the rejection-sampling control, and link its policy and evaluations."""
        self._link("checkpoints", "rejection", control.policy)
        self._link("evaluations", "rejection", control.evaluation)
        if control.greedy_evaluation is not None:
            self._link("evaluations", "rejection-greedy", control.greedy_evaluation)
        self.record(rejection=control)

    def stop_stages(self) -> None:
        """End the stages that other threads compute, because the run ends: their workers are killed."""
        self.workspace.stopped.set()
        stop_workers()

    def is_reported(self, inputs: BaseModel) -> bool:
        """Return True if the report of exactly these inputs exists."""
        written = all((self.run_dir / name).exists() for name in ("summary.json", "report.html"))
        return written and "report" not in self.workspace.refresh and self.state.concluded == _digest(inputs)

    def mark_reported(self, inputs: BaseModel) -> None:
        """Record the inputs of the report."""
        self.record(concluded=_digest(inputs))

    def record(self, **changes: object) -> None:
        """Set fields of the run's state, add the stages that ended since the last call, and write it."""
        with self.recording:
            self._record(changes, list(self.workspace.records))

    def _record(self, changes: dict[str, object], records: list[StageRecord]) -> None:
        timings = {
            record.label: StageTiming(
                label=record.label,
                stage=record.stage,
                seconds=record.seconds,
                overhead_s=record.overhead_s,
                began=None if record.cached else round(record.began, 3),
            )
            for record in records
            if not (record.cached and record.label in self.state.timings)
        }
        computed = sum(not record.cached for record in records)
        if computed > self.counted:  # a driver that computes nothing adds no time
            self.counted = computed
            changes["wall_seconds"] = round(self.wall_before_s + time.monotonic() - self.began, 3)
        artifacts = {record.label: record.uri for record in records}
        digests = {record.label: record.digest for record in records}
        self.state = self.state.model_copy(
            update={
                **changes,
                "timings": {**self.state.timings, **timings},
                "artifacts": {**self.state.artifacts, **artifacts},
                "digests": {**self.state.digests, **digests},
            }
        )
        write_state(self.run_dir, self.state)
        for record in records:
            if record.docs_dir.is_dir():
                link_to(self.run_dir / "data_docs" / record.label.replace(" ", "-"), record.docs_dir)

    def _note_figures(self, iteration: int, stage: FigureStage, artifact: ArtifactRef) -> None:
        busy = None if self.load is None else self.load.take()
        line = record_figures(self.run_dir, iteration, stage, artifact, busy)
        if line is not None and self.tracking is not None:
            self.tracking.log_line(line)
            if isinstance(artifact, TrajectoryBatchRef):
                self.tracking.log_samples(iteration, artifact)

    def note_steps(self, name: str, label: str, key: str, rows: OptimizerSteps) -> None:
        """Record optimizer steps of a stage that trains, as they come."""
        lines = step_lines(training_of(name, label), key, rows)
        self.steps.add(lines)
        if self.tracking is not None:
            self.tracking.log_steps(lines)

    def _link(self, folder: str, name: str, reference: ArtifactRef) -> None:
        link_to(self.run_dir / folder / name, reference.path)


def _digest(inputs: BaseModel) -> str:
    """Return the digest of the report's inputs, wherever the runs lie."""
    values = with_paths(inputs.model_dump(mode="json"), lambda _: "")
    values.get("configuration", {}).pop("runs_dir", None)
    return digest_of(normalised(values))


@contextmanager
def open_run(config: RunConfig, is_newest: bool = True, for_pairs: bool = False) -> Generator[Run]:
    """Yield the run of this configuration, new or resumed; `is_newest`: `runs/latest` points to it from now on.

    `for_pairs`: SFT's pairs are made, which takes neither model nor ranks, and often no GPU.

    If another driver has it open, a run of a deployment waits for it; otherwise InputError is raised.
    """
    runs_dir = Path(config.runs_dir).resolve()
    run_dir = runs_dir / config.run_id
    run_dir.mkdir(parents=True, exist_ok=True)
    ray = config.ray.model_copy(update={"placement": ()}) if for_pairs else config.ray
    cluster, slots, starting = RayCluster(ray, needs_of(config)), GpuSlots(config), threading.Lock()
    needs_no_gpu = for_pairs and config.judges_pairs_on_cpus

    def before_work() -> None:
        with starting:  # stages of two threads may begin at the same time
            if not needs_no_gpu:
                slots.take()
            cluster.start(workspace.warn)

    began = time.monotonic() - startup_s.get()
    tag_flow_run(config)
    with (
        locked(run_dir),
        _sigterm_handled(on_sigterm.get()),
        logged_to(run_dir / "log.txt"),
        events_kept(PREFECT_API_URL.value()),
        artifacts_sent(),
        server_awaited(PREFECT_API_URL.value(), config.prefect.start_timeout_s),
        GpuLoad() as load,
    ):
        save_configuration(config, run_dir / "config.yaml")
        if is_newest:
            link_to(runs_dir / LATEST, run_dir)
        further = listener.get()
        workspace = Workspace(
            runs_dir=runs_dir,
            run_id=config.run_id,
            listeners=[LogListener(get_run_logger()), *([further] if further else [])],
            before_work=before_work,
            refresh=refresh.get(),
            stages=config.stages,
            shared=_shared_store(config, runs_dir),
        )
        note_flow_run(get_run_logger())
        state = read_state(run_dir)
        if not state.timings and startup_s.get():
            start = StageTiming(label="start", stage="start", seconds=0.0, overhead_s=round(startup_s.get(), 3))
            state = state.model_copy(update={"timings": {start.label: start}})
        tracking = _tracking(config, run_dir)
        failed = True
        try:
            ready = config if for_pairs else with_converted_model(config)
            run = Run(ready, workspace, state, began, state.wall_seconds, 0, tracking, load)
            workspace.on_steps = run.note_steps
            yield run
            if workspace.shared is not None:
                workspace.shared.finish()
            failed = False
        finally:
            cluster.stop(keep_logs=failed)
            slots.give_back()
            if tracking is not None:
                tracking.finish()


def _shared_store(config: RunConfig, runs_dir: Path) -> "SharedStore | None":
    if config.store is None:
        return None
    from tasks.pipeline.shared_store import SharedStore

    return SharedStore(config.store, runs_dir)


def _tracking(config: RunConfig, run_dir: Path) -> LiveTracking | None:
    if config.tracking.mode == "disabled":
        return None
    return live_tracking(config.tracking, run_dir, config.name, config.model_dump(mode="json"))


def with_converted_model(config: RunConfig) -> RunConfig:
    """Return the configuration with `model.pretrained: megatron:PATH` replaced by the Hugging Face folder made of it.

    It is made once, in `converted/` of the folder of runs.
    """
    if config.model.megatron is None:
        return config
    from extras.convert.pretrained import converted_policy

    folder = converted_policy(config.model, Path(config.runs_dir) / "converted")
    model = config.model.model_copy(update={"pretrained": str(folder), "like": None})
    return config.model_copy(update={"model": model})


def link_to(link: Path, target: Path) -> None:
    """Create or replace a relative symbolic link atomically. Raises InputError if something else is in its place."""
    link.parent.mkdir(parents=True, exist_ok=True)
    partial = link.with_name(f".{link.name}-{os.getpid()}")
    partial.unlink(missing_ok=True)
    partial.symlink_to(os.path.relpath(target, link.parent))
    try:
        partial.replace(link)
    except IsADirectoryError as error:
        partial.unlink()
        raise InputError(f"{link}: expected a link, or nothing, found a folder; move it away") from error


@contextmanager
def _sigterm_handled(handler: SignalHandler) -> Generator[None]:
    """Use this handler instead of the one that Prefect has set for the flow; None: leave Prefect's."""
    if handler is None:
        yield
        return
    before = signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
