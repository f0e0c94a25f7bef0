"""What a training program says while it runs: how far it is, and at last the rows of `metrics.parquet`, one an optimizer step."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from tasks.pipeline.progress import Progress

METRICS_FILE = "metrics.parquet"
_SOMETIMES_EMPTY = ("validation_loss",)
"""Numbers that not every step has: their columns are of numbers even where no step has one."""


def metrics_table(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return the rows as a table; null where a number was not measured."""
    types = {name: pl.Float64 for name in _SOMETIMES_EMPTY if rows and name in rows[0]}
    return pl.DataFrame(list(rows), schema_overrides=types)


def record(said: Iterable[dict[str, Any]], folder: Path, progress: Progress) -> None:
    """Hand a program's progress on until it has ended; write `metrics.parquet` into the folder of its checkpoint."""
    for entry in said:
        if "rows" in entry:
            metrics_table(entry["rows"]).write_parquet(folder / METRICS_FILE)
        else:
            progress(**entry)
