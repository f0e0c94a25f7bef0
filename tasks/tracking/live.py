"""Live tracking: a thread of the driver that logs a run's figures to W&B as they come.

The stages never wait for W&B: `log_line` and `log_metrics` only put rows into a queue. `<run>/wandb/sent.jsonl` notes
what was logged to which project; nothing is logged to it twice, by whatever driver of the run.
"""

import functools
import json
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from kernels_eval.errors import InputError
from tasks.evaluation.stage_figures import training_metrics
from tasks.pipeline.json_file import json_lines
from tasks.pipeline.references import CheckpointRef, TrajectoryBatchRef
from tasks.tracking.config import TrackingConfig
from tasks.tracking.figures import FigureLine
from tasks.tracking.samples import sample_table
from tasks.tracking.wandb_run import Row, TrackedRun, started

LOGGER = logging.getLogger(__name__)
FINISH_S = 60.0
"""Longest wait for W&B at the end of a run."""
SENT_FILE = Path("wandb", "sent.jsonl")
_PREFIXES = {"evaluation": "heldout", "evaluation_greedy": "heldout_greedy"}
Rows = Sequence[Row]


class LiveTracking:
    """W&B run of a training run. It is begun with the first row that is new.

    `address`: URL of its page; offline, the folder for `wandb sync`; None if nothing was logged.
    """

    def __init__(self, config: TrackingConfig, tracked: TrackedRun) -> None:
        self._config = config
        self._tracked = tracked
        self._file = Path(tracked.directory) / SENT_FILE
        self._destination = "/".join(
            [config.mode, os.environ.get("WANDB_BASE_URL", ""), config.entity or "", config.project]
        )
        self._sent, self.address = _sent(self._file, self._destination)
        self._queue: SimpleQueue[tuple[str, Callable[[], Rows]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._finished = config.mode == "disabled"

    def log_line(self, line: FigureLine) -> None:
        """Log the figures of an artifact at its iteration, e.g. `rollout/correct`, `heldout/correct_ci_low`."""
        prefix = _PREFIXES.get(line.stage, line.stage)
        row = {f"{prefix}/{name}": value for name, value in _flat(line.figures).items()}
        self._put(f"{line.stage} {line.iteration} {line.artifact}", lambda: [{**row, "iteration": line.iteration}])

    def log_samples(self, iteration: int, batch: TrajectoryBatchRef) -> None:
        """Log some kernels of a rollout as the table `rollout/samples`."""
        self._put(f"samples {iteration} {batch.digest}", functools.partial(_samples, iteration, batch))

    def log_metrics(self, checkpoint: CheckpointRef, prefix: str, first_step: int = 0) -> int:
        """Log each optimizer step of a training as `<prefix>/<column>`; return the next free step."""
        metrics = training_metrics(checkpoint)
        numeric = [name for name, kind in metrics.schema.items() if kind.is_numeric()]
        rows = [
            {**{f"{prefix}/{name}": value for name, value in row.items() if value is not None}, "step": step}
            for step, row in enumerate(metrics.select(numeric).iter_rows(named=True), start=first_step)
        ]
        if rows:
            self._put(f"{prefix} {checkpoint.weight_version} {checkpoint.digest}", lambda: rows)
        return first_step + metrics.height

    def finish(self, patience_s: float = FINISH_S) -> None:
        """Wait until everything is logged, at most `patience_s`; later rows are dropped."""
        self._finished = True
        if self._thread is None:
            return
        self._queue.put(None)
        self._thread.join(patience_s)
        if self._thread.is_alive():
            LOGGER.warning("Weights & Biases: not done after %.0f s; this run goes on without it", patience_s)
        self._thread = None

    def _put(self, key: str, rows: Callable[[], Rows]) -> None:
        """Have rows logged under a key; the thread makes them."""
        if self._finished or key in self._sent:
            return
        self._sent.add(key)
        if self._thread is None:
            self._thread = threading.Thread(target=self._log_all, name="wandb", daemon=True)
            self._thread.start()
        self._queue.put((key, rows))

    def _log_all(self) -> None:
        tracker = started(self._config, self._tracked)
        self.address = tracker.address or self.address
        while (item := self._queue.get()) is not None:
            key, rows = item
            if all(tracker.log(row) for row in rows()):
                self._note(key)
        tracker.finish()

    def _note(self, key: str) -> None:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"to": self._destination, "sent": key, "address": self.address}) + "\n")
        except OSError as error:
            LOGGER.warning("%s: %s; the next driver of this run logs %s again", self._file, error, key)


def _samples(iteration: int, batch: TrajectoryBatchRef) -> Rows:
    try:
        return [{"rollout/samples": sample_table(batch), "iteration": iteration}]
    except InputError as error:
        LOGGER.warning("%s; no samples of iteration %d are logged", error, iteration)
        return []


def _sent(file: Path, destination: str) -> tuple[set[str], str | None]:
    """Return the keys of what was logged to a destination, and the address that it had last."""
    sent: set[str] = set()
    address: str | None = None
    with suppress(OSError):
        for entry in json_lines(file):
            if entry.get("to") == destination:
                sent.add(str(entry.get("sent")))
                address = entry.get("address")
    return sent, address


def _flat(figures: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Return figures as plain numbers: groups as `statuses/correct`, intervals as two; without those of no value."""
    flat: dict[str, float] = {}
    for name, value in figures.items():
        match value:
            case None:
                continue
            case [low, high]:
                flat |= {f"{prefix}{name}_low": low, f"{prefix}{name}_high": high}
            case {}:
                flat |= _flat(value, f"{prefix}{name}/")
            case _:
                flat[f"{prefix}{name}"] = value
    return flat
