"""Metrics of a training: the rows of `metrics.parquet`, one an optimizer step, and the comparison of two updates."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from kernels_eval.errors import InputError
from tasks.pipeline.digests import learn
from tasks.pipeline.references import Progress
from tasks.pipeline.store import read_manifest
from tasks.pipeline.tables import METRICS_FILE, read_table, write_table

OnSteps = Callable[[Sequence[Mapping[str, Any]]], None]
"""Callback of a training, called with rows of `metrics.parquet` while it goes on. A resumed one gives some again."""
_SOMETIMES_EMPTY = ("validation_loss",)
"""Numbers that not every step has; their columns are floats even if no step has one."""
_NOT_COMPARED = ("iteration", "step", "epoch")


def metrics_table(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return the rows as a table; null for a number that was not measured."""
    types = {name: pl.Float64 for name in _SOMETIMES_EMPTY if rows and name in rows[0]}
    return pl.DataFrame(list(rows), schema_overrides=types)


def unseen(_rows: Sequence[Mapping[str, Any]]) -> None:
    """Ignore the rows."""


def record(entries: Iterable[dict[str, Any]], folder: Path, progress: Progress, on_steps: OnSteps = unseen) -> None:
    """Pass on a program's progress until it has ended; write `metrics.parquet` into the folder of its checkpoint.

    Entries have the rows of the steps since the one before (`steps`). The last entry has the table's `rows`, and the
    digests of the files that the rank has written there (`known`).
    """
    for entry in entries:
        if "rows" in entry:
            learn(folder, entry["known"])
            write_table(metrics_table(entry["rows"]), folder / METRICS_FILE)
        else:
            on_steps(entry.pop("steps", ()))
            progress(**entry)


def compare_updates(first: Path, second: Path) -> pl.DataFrame:
    """Return a row a metric: its means over the optimizer steps, and the largest difference at one step.

    first, second: folders of published checkpoints. Columns: `metric`, `first`, `second` (means),
    `largest_difference` (null if the numbers of steps differ), `at_step`. Raises InputError if a folder is no
    update's, or they trained on different batches.
    """
    batches = [_batch_of(folder) for folder in (first, second)]
    if batches[0] != batches[1]:
        raise InputError(
            f"{second}: trained on the batch {batches[1]}, expected {batches[0]}, that of {first}: "
            "only updates on the same batch compare"
        )
    ours, theirs = (read_table(folder / METRICS_FILE) for folder in (first, second))
    rows: list[dict[str, object]] = []
    for name in ours.columns:
        if name in _NOT_COMPARED or name not in theirs.columns:
            continue
        row: dict[str, object] = {"metric": name, "first": ours[name].mean(), "second": theirs[name].mean()}
        if len(ours) == len(theirs):
            apart = (ours[name].cast(pl.Float64) - theirs[name].cast(pl.Float64)).abs()
            row |= {"largest_difference": apart.max(), "at_step": apart.arg_max()}
        rows.append(row)
    schema = {"metric": pl.String, "first": pl.Float64, "second": pl.Float64}
    return pl.DataFrame(rows, schema={**schema, "largest_difference": pl.Float64, "at_step": pl.Int64})


def _batch_of(folder: Path) -> str:
    manifest = read_manifest(folder)
    batch = None if manifest is None else manifest["metadata"].get("batch")
    if batch is None:
        raise InputError(f"{folder}: expected the published checkpoint of an update, found none")
    return str(batch)
