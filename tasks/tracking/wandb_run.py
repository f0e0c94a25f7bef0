"""Weights & Biases: one W&B run for each stage of a training run, and the figures logged to it.

Run id = run id + stage, resumed if it exists; group = series (the name of the configuration); job type = stage. What
W&B raises becomes one warning, and logging stops for that stage. Offline (the default) everything is written below
`<directory>/wandb`; `wandb sync` sends it, and joins the folders of a stage that ran twice.
"""

import json
import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import Field

from kernels_eval.frozen import FrozenModel
from tasks.pipeline.references import CheckpointRef, EvaluationRef
from tasks.tracking.config import TrackingConfig

LOGGER = logging.getLogger(__name__)
STEP = "step"
"""Horizontal axis of all figures: optimizer steps since the stage began, or iterations."""


class TrackedStage(FrozenModel):
    """A stage to be tracked."""

    run_id: str
    stage: str
    """`sft`, `update`, `evaluation`: the job type."""
    series: str
    """Runs of one series are shown as a group."""
    directory: str
    """W&B's files go to `<directory>/wandb`."""
    configuration: dict[str, Any] = Field(default_factory=dict[str, Any])
    orchestration: dict[str, str] = Field(default_factory=dict[str, str])
    """Ids of the orchestrator's run, e.g. `{"prefect_flow_run_id": …}`."""

    @property
    def wandb_id(self) -> str:
        """The id of the W&B run."""
        return f"{self.run_id}-{self.stage}"


class Tracker:
    """Logger of a stage. Without a W&B run behind it (disabled, unreachable) it does nothing."""

    def __init__(self, run: Any | None) -> None:
        self._run = run

    @property
    def address(self) -> str | None:
        """URL of the run's page; offline, the folder for `wandb sync`; None if nothing is tracked."""
        if self._run is None:
            return None
        return str(Path(self._run.dir).parent if self._run.offline else self._run.url)

    def log(self, step: int, figures: Mapping[str, float | None]) -> None:
        """Log figures at a step; None values are left out."""
        present = {name: value for name, value in figures.items() if value is not None}
        self._attempt(lambda run: run.log({**present, STEP: step}))

    def finish(self) -> None:
        """Write out pending data."""
        self._attempt(lambda run: run.finish())
        self._run = None

    def _attempt(self, action: Callable[[Any], object]) -> None:
        if self._run is not None and _outcome(lambda: action(self._run)) is _FAILED:
            self._run = None


@contextmanager
def tracked(config: TrackingConfig, stage: TrackedStage) -> Generator[Tracker]:
    """Yield the tracker of one stage; finish it in any case."""
    tracker = Tracker(_started(config, stage))
    try:
        yield tracker
    finally:
        tracker.finish()


_FAILED = object()


def _outcome(action: Callable[[], Any]) -> Any:
    """Run `action`; the one boundary that turns any failure of W&B into a warning: tracking is a by-product."""
    try:
        return action()
    except Exception as error:  # noqa: BLE001
        LOGGER.warning("Weights & Biases: %s; this stage goes on without it", error)
        return _FAILED


def _started(config: TrackingConfig, stage: TrackedStage) -> Any | None:
    if config.mode == "disabled":
        return None
    run = _outcome(lambda: _init(config, stage))
    return None if run is _FAILED else run


def _init(config: TrackingConfig, stage: TrackedStage) -> Any:
    import wandb

    directory = Path(stage.directory)
    directory.mkdir(parents=True, exist_ok=True)
    run = wandb.init(
        mode=config.mode,
        project=config.project,
        entity=config.entity,
        id=stage.wandb_id,
        name=stage.wandb_id,
        group=stage.series,
        job_type=stage.stage,
        resume="allow" if config.mode == "online" else None,  # offline, W&B ignores it and warns
        dir=str(directory),
        config={"configuration": stage.configuration, "run_id": stage.run_id, **stage.orchestration},
        reinit="create_new",
        # Nothing of the host beyond what the run logs, no captured console, and no long wait for a server that is away.
        settings=wandb.Settings(
            silent=True,
            console="off",
            init_timeout=30,
            login_timeout=10,
            disable_git=True,
            disable_code=True,
            x_disable_stats=True,
            x_save_requirements=False,
        ),
    )
    run.define_metric(STEP)
    run.define_metric("*", step_metric=STEP)
    return run


def log_metrics(tracker: Tracker, checkpoint: CheckpointRef, prefix: str, first_step: int = 0) -> int:
    """Log every row of the checkpoint's `metrics.parquet` as `<prefix>/<column>`; return the next free step."""
    path = checkpoint.path / "metrics.parquet"
    metrics = pl.read_parquet(path)
    numeric = [name for name, kind in metrics.schema.items() if kind.is_numeric()]
    for row_number, row in enumerate(metrics.select(numeric).iter_rows(named=True)):
        tracker.log(first_step + row_number, {f"{prefix}/{name}": value for name, value in row.items()})
    return first_step + metrics.height


def log_evaluation(tracker: Tracker, evaluation: EvaluationRef, step: int, prefix: str = "heldout") -> None:
    """Log the figures of a held-out evaluation as `<prefix>/<figure>`, with the ends of their intervals."""
    content = json.loads((evaluation.path / "evaluation.json").read_text(encoding="utf-8"))
    tracker.log(step, {f"{prefix}/{name}": value for name, value in _flat(content["overall"]).items()})


def _flat(figures: Mapping[str, Any]) -> dict[str, float | None]:
    flat: dict[str, float | None] = {}
    for name, value in figures.items():
        if isinstance(value, list):
            flat[f"{name}_low"], flat[f"{name}_high"] = value
        else:
            flat[name] = value
    return flat
