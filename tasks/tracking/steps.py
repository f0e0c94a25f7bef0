"""`runs/<run>/steps.jsonl`: each optimizer step of a run while it trains, one JSON object a line.

time      UTC, when the line was written
training  stage that trains: `sft`, `update`, `repairs`, `joint_epoch`, `control` or `rejection_epoch`; of an agent with
          weights of its own with its name, as in `sft/tester`
key       the stage's key: the name of its folder in the store
step      number of the step, of updates counted over the whole run
figures   numbers of this row of `metrics.parquet`

A training that was killed does some steps again: none is written twice. One that begins anew under another key replaces
the lines of the same training from its first step on.
"""

import math
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from kernels_eval.frozen import FrozenModel
from tasks.evaluation.stage_figures import training_metrics
from tasks.pipeline.json_file import json_lines
from tasks.pipeline.references import CheckpointRef
from tasks.tracking.lines import append_lines, utc_now

STEPS_FILE = "steps.jsonl"


class StepLine(FrozenModel):
    """Figures of one optimizer step."""

    time: str
    training: str
    key: str
    step: int = Field(ge=0)
    figures: dict[str, float]


def training_of(stage: str, label: str) -> str:
    """Return the name of a training: its stage's, and the agent that the stage's label names, if it does."""
    agent = re.search(r" of (?:the )?(\w[^,]*)", label)
    return "/".join([stage, *([re.sub(r"\W+", "_", agent[1])] if agent else [])])


def step_lines(training: str, key: str, rows: Iterable[Mapping[str, Any]]) -> list[StepLine]:
    """Return rows of `metrics.parquet` as lines with the present time; what is no finite number is left out."""
    now = utc_now()
    return [
        StepLine(
            time=now,
            training=training,
            key=key,
            step=row.get("step", place),
            figures={
                name: value
                for name, value in row.items()
                if name != "step" and isinstance(value, int | float) and math.isfinite(value)
            },
        )
        for place, row in enumerate(rows)
    ]


def steps_of(checkpoint: CheckpointRef) -> list[StepLine]:
    """Return the optimizer steps behind a published checkpoint; none of a team, or of a policy from elsewhere."""
    stage, key = checkpoint.path.parts[-2:]
    return step_lines(stage, key, training_metrics(checkpoint).iter_rows(named=True))


class StepRecord:
    """The file of a run, as its driver writes it."""

    def __init__(self, run_dir: Path) -> None:
        self._file = run_dir / STEPS_FILE
        self._writing = threading.Lock()
        self._last: dict[tuple[str, str], int] | None = None
        """Last step that was written, by training and key."""

    def add(self, lines: Sequence[StepLine]) -> list[StepLine]:
        """Append those lines of one training whose steps are not written yet, and return them."""
        with self._writing:
            if self._last is None:
                self._last = {}
                for line in _stored(self._file):
                    self._note(line)
            new = [line for line in lines if line.step > self._last.get((line.training, line.key), -1)]
            append_lines(self._file, [line.model_dump_json() for line in new])
            for line in new:
                self._note(line)
            return new

    def _note(self, line: StepLine) -> None:
        assert self._last is not None
        known = self._last.get((line.training, line.key), -1)
        self._last[line.training, line.key] = max(known, line.step)


def read_steps(run_dir: Path) -> dict[str, list[StepLine]]:
    """Return the current steps of each training of a run, in their order; none if it has no file yet."""
    found: dict[str, list[StepLine]] = {}
    for line in _stored(run_dir / STEPS_FILE):
        known = found.setdefault(line.training, [])
        while known and known[-1].step >= line.step:
            known.pop()
        known.append(line)
    return found


def _stored(file: Path) -> Iterable[StepLine]:
    for stored in json_lines(file):
        with suppress(ValidationError):  # of another version
            yield StepLine.model_validate(stored)
