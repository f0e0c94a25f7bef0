"""Weights & Biases: one W&B run for each training run.

Run id = run id, resumed if it exists; group = series (the name of the configuration). What W&B raises becomes one
warning, and logging stops for this driver. Offline (the default) everything is written below `<directory>/wandb`;
`wandb sync` sends it, and joins the folders of a run that was resumed.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from kernels_eval.frozen import FrozenModel
from tasks.tracking.config import TrackingConfig
from tasks.tracking.samples import COLUMNS, SampleTable

FLUSH_S = 1.0
"""Interval at which W&B writes its file; a kill loses what it holds in memory."""
LOGGER = logging.getLogger(__name__)
AXES = {
    "iteration": ("rollout", "update", "heldout", "heldout_greedy"),
    "step": ("sft", "repairs", "joint_epoch", "update_step", "control", "rejection_epoch"),
}
"""Horizontal axes, and the prefixes of the figures over each: RL iterations, and optimizer steps."""


Row = Mapping[str, float | SampleTable]
"""Figures and tables by name, with the number on their axis."""


class TrackedRun(FrozenModel):
    """A training run to be tracked."""

    run_id: str
    series: str
    """Runs of one series are shown as a group."""
    directory: str
    """W&B's files go to `<directory>/wandb`."""
    configuration: dict[str, Any] = Field(default_factory=dict[str, Any])
    orchestration: dict[str, str] = Field(default_factory=dict[str, str])
    """Ids of the orchestrator's run, e.g. `{"prefect_flow_run_id": …}`."""


class Tracker:
    """Logger of a run. Without a W&B run behind it (disabled, unreachable) it does nothing."""

    def __init__(self, run: Any | None) -> None:
        self._run = run

    @property
    def address(self) -> str | None:
        """URL of the run's page; offline, the folder for `wandb sync`; None if nothing is tracked."""
        if self._run is None:
            return None
        return str(Path(self._run.dir).parent if self._run.offline else self._run.url)

    @property
    def next_row(self) -> int:
        """Number of the row that W&B expects next."""
        return int(getattr(self._run, "step", 0))

    def log(self, row: Row, number: int) -> bool:
        """Log figures and tables with the number on their axis, e.g. `iteration`; return False if that failed.

        `number` counts the rows of the run over all of its drivers: W&B drops a row that it has already.
        """
        self._attempt(
            lambda run: run.log({name: _for_wandb(value) for name, value in row.items()}, step=number, commit=True)
        )
        return self._run is not None

    def finish(self) -> None:
        """Write out pending data."""
        self._attempt(lambda run: run.finish())
        self._run = None

    def _attempt(self, action: Callable[[Any], object]) -> None:
        if self._run is not None and _outcome(lambda: action(self._run)) is _FAILED:
            self._run = None


def started(config: TrackingConfig, tracked: TrackedRun) -> Tracker:
    """Begin or resume the W&B run."""
    if config.mode == "disabled":
        return Tracker(None)
    run = _outcome(lambda: _init(config, tracked))
    return Tracker(None if run is _FAILED else run)


_FAILED = object()


def _outcome(action: Callable[[], Any]) -> Any:
    """Run `action`; the one boundary that turns any failure of W&B into a warning: tracking is a by-product."""
    try:
        return action()
    except Exception as error:  # noqa: BLE001
        LOGGER.warning("Weights & Biases: %s; this run goes on without it", error)
        return _FAILED


def _for_wandb(value: float | SampleTable) -> Any:
    if not isinstance(value, SampleTable):
        return value
    import wandb

    rows: list[Any] = list(value.rows)
    return wandb.Table(columns=list(COLUMNS), data=rows)


def _init(config: TrackingConfig, tracked: TrackedRun) -> Any:
    import wandb

    directory = Path(tracked.directory)
    directory.mkdir(parents=True, exist_ok=True)
    run = wandb.init(
        mode=config.mode,
        project=config.project,
        entity=config.entity,
        id=tracked.run_id,
        name=tracked.run_id,
        group=tracked.series,
        job_type="training",
        resume="allow" if config.mode == "online" else None,  # offline, W&B ignores it and warns
        dir=str(directory),
        config={"configuration": tracked.configuration, "run_id": tracked.run_id, **tracked.orchestration},
        reinit="create_new",
        # Of the host only the load (processors, memory, GPUs); no captured console; no long wait for a server.
        settings=wandb.Settings(
            silent=True,
            console="off",
            init_timeout=30,
            login_timeout=10,
            disable_git=True,
            disable_code=True,
            x_disable_machine_info=True,
            x_save_requirements=False,
            x_transaction_log_flush_interval=FLUSH_S,
        ),
    )
    for axis, prefixes in AXES.items():
        run.define_metric(axis)
        for prefix in prefixes:
            run.define_metric(f"{prefix}/*", step_metric=axis)
    return run
