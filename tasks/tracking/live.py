"""Live tracking: a thread of the driver that logs a run's figures to W&B, or `tracking.backend`, as they come.

The stages never wait for W&B: they only put rows into a queue. `<run>/wandb/sent.jsonl` notes what was logged to which
project; nothing is logged to it twice, by whatever driver of the run, and rows are counted on from driver to driver.
"""

import functools
import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from kernels_eval.errors import InputError, first_line
from tasks.pipeline.json_file import json_lines
from tasks.pipeline.references import CheckpointRef, TrajectoryBatchRef
from tasks.tracking.config import TRACKER, TrackingConfig
from tasks.tracking.figures import FigureLine
from tasks.tracking.lines import append_lines
from tasks.tracking.samples import sample_table
from tasks.tracking.steps import StepLine, steps_of
from tasks.tracking.wandb_run import FLUSH_S, Row, TrackedRun

LOGGER = logging.getLogger(__name__)
WRITTEN_S = 3 * FLUSH_S
"""Time after which a row that was logged is on the disk."""
FINISH_S = 60.0
"""Longest wait for W&B at the end of a run."""
SENT_FILE = Path("wandb", "sent.jsonl")
_PREFIXES = {"evaluation": "heldout", "evaluation_greedy": "heldout_greedy"}
Rows = Sequence[Row]
_Item = tuple[dict[str, Any], Callable[[], Rows]]
"""Note on rows, and a function that makes them."""


@dataclass
class _Sent:
    """Record of what was logged to one destination."""

    keys: set[str] = field(default_factory=set[str])
    steps: dict[str, int] = field(default_factory=dict[str, int])
    """Last optimizer step by training."""
    rows: int | None = None
    """Number of rows; None if that was not noted."""
    address: str | None = None


class LiveTracking:
    """W&B run of a training run. It is begun with the first row that is new.

    `address`: URL of its page; offline, the folder for `wandb sync`; None if nothing was logged.
    """

    def __init__(self, config: TrackingConfig, tracked: TrackedRun) -> None:
        self._config = config
        self._tracked = tracked
        self._file = Path(tracked.directory) / SENT_FILE
        own = [] if config.backend == "wandb" else [config.backend]
        self._destination = "/".join(
            [*own, config.mode, os.environ.get("WANDB_BASE_URL", ""), config.entity or "", config.project]
        )
        self._sent = _sent(self._file, self._destination)
        self.address = self._sent.address
        self._queue: SimpleQueue[_Item | None] = SimpleQueue()
        self._unwritten: list[tuple[float, dict[str, Any]]] = []
        """Notes of rows that W&B may still hold in memory, with the time at which they were logged."""
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

    def log_steps(self, lines: Sequence[StepLine]) -> None:
        """Log optimizer steps of one training over `step`: as `sft/loss`, those of updates as `update_step/loss`."""
        if not lines:
            return
        first = lines[0]
        series = f"{first.training} {first.key}"
        prefix = re.sub(r"^update\b", "update_step", first.training)
        new = [line for line in lines if line.step > self._sent.steps.get(series, -1)]
        if not new:
            return
        self._sent.steps[series] = last = new[-1].step
        rows = [
            {**{f"{prefix}/{name}": value for name, value in line.figures.items()}, "step": line.step} for line in new
        ]
        self._put(f"{series}: {last}", lambda: rows, {"training": series, "step": last})

    def log_metrics(self, checkpoint: CheckpointRef) -> None:
        """Log the optimizer steps of a published checkpoint that were not logged while it was trained."""
        whole = f"{checkpoint.weight_version} {checkpoint.digest}"  # as earlier versions noted it
        if {f"sft {whole}", f"update_step {whole}"}.isdisjoint(self._sent.keys):
            self.log_steps(steps_of(checkpoint))

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

    def _put(self, key: str, rows: Callable[[], Rows], noted: Mapping[str, Any] | None = None) -> None:
        """Have rows logged under a key; the thread makes them, and notes them with `noted`."""
        if self._finished or key in self._sent.keys:
            return
        self._sent.keys.add(key)
        if self._thread is None:
            self._thread = threading.Thread(target=self._log_all, name="wandb", daemon=True)
            self._thread.start()
        self._queue.put(({"sent": key, **(noted or {})}, rows))

    def _log_all(self) -> None:
        try:
            self._log_until_the_end(TRACKER.load(self._config.backend)(self._config, self._tracked))
        except Exception as error:  # noqa: BLE001  # of a tracker of the user's
            LOGGER.warning("tracking.backend: %s: %s: %s; this run goes on without it", self._config.backend,
                           type(error).__name__, first_line(error))  # fmt: skip

    def _log_until_the_end(self, tracker: Any) -> None:
        self.address = tracker.address or self.address
        number = tracker.next_row if self._sent.rows is None else self._sent.rows
        for noted, make in self._items():
            rows = make()
            if all(tracker.log(row, place) for place, row in enumerate(rows, start=number)):
                number += len(rows)
                self._unwritten.append((time.monotonic(), {**noted, "rows": number}))
        tracker.finish()
        self._note_written(0.0)

    def _items(self) -> Iterator[_Item]:
        """Yield what is to be logged until the end, and note meanwhile what W&B has written to the disk."""
        while True:
            try:
                item = self._queue.get(timeout=WRITTEN_S if self._unwritten else None)
            except Empty:
                self._note_written(WRITTEN_S)
                continue
            if item is None:
                return
            yield item
            self._note_written(WRITTEN_S)

    def _note_written(self, age_s: float) -> None:
        """Note the rows that were logged so long ago: those after them a kill may lose, and they are logged again."""
        while self._unwritten and time.monotonic() - self._unwritten[0][0] >= age_s:
            self._note(self._unwritten.pop(0)[1])

    def _note(self, noted: Mapping[str, Any]) -> None:
        entry = {"to": self._destination, **noted, "address": self.address}
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            append_lines(self._file, [json.dumps(entry)])
        except OSError as error:
            LOGGER.warning("%s: %s; the next driver of this run logs %s again", self._file, error, noted["sent"])


def _samples(iteration: int, batch: TrajectoryBatchRef) -> Rows:
    try:
        return [{"rollout/samples": sample_table(batch), "iteration": iteration}]
    except InputError as error:
        LOGGER.warning("%s; no samples of iteration %d are logged", error, iteration)
        return []


def _sent(file: Path, destination: str) -> _Sent:
    sent = _Sent()
    with suppress(OSError):
        for entry in json_lines(file):
            if entry.get("to") != destination:
                continue
            sent.keys.add(str(entry.get("sent")))
            sent.address = entry.get("address")
            sent.rows = entry.get("rows", sent.rows)
            if "training" in entry:
                known = sent.steps.get(entry["training"], -1)
                sent.steps[entry["training"]] = max(known, int(entry["step"]))
    return sent


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
