"""Many partitions as one data set: fewer files to open and larger row groups to scan, of today's schema.

The partitions stay: they are what the run's later stages were made from. The new data set is read like any other (`analyze`,
`show`, `data export`), and holds the rows of all iterations, sorted by iteration, trajectory and turn. One partition is in memory at
a time.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from kernels_eval.errors import InputError
from tasks.pipeline.store import publish, published_digest
from tasks.trajectories.reader import read_trajectories_file, read_turns_file
from tasks.trajectories.schema import TRAJECTORIES_FILE, TRAJECTORIES_SCHEMA, TURNS_FILE, TURNS_SCHEMA

ROW_GROUP = 65_536


def compact(folders: Sequence[Path], destination: Path) -> int:
    """Publish the rows of all data sets at `destination`; return the number of turns.

    InputError where the destination is taken, or two data sets hold the same iteration of a run.
    """
    if destination.exists():
        raise InputError(f"{destination}: is there already; name another folder, or remove it first")
    seen: dict[tuple[str, int], Path] = {}
    metadata: dict[str, Any] = {"compacted_from": [published_digest(folder) for folder in folders]}
    turns = 0
    with publish(destination, metadata) as partial:
        for name, schema, read in (
            (TRAJECTORIES_FILE, TRAJECTORIES_SCHEMA, read_trajectories_file),
            (TURNS_FILE, TURNS_SCHEMA, read_turns_file),
        ):
            rows = _copy(folders, partial, name, schema, read, seen if name == TRAJECTORIES_FILE else {})
            turns = rows
        metadata["iterations"] = sorted({iteration for _, iteration in seen})
    return turns


def _copy(
    folders: Sequence[Path],
    partial: Path,
    name: str,
    schema: pa.Schema,
    read: Callable[[Path], pl.DataFrame],
    seen: dict[tuple[str, int], Path],
) -> int:
    """Write one table of all data sets; return its rows. `seen` collects which data set holds which iteration of a run."""
    rows = 0
    with pq.ParquetWriter(partial / name, schema, compression="zstd") as writer:
        for folder in folders:
            table = read(folder / name)
            for run_id, iteration in table.select("run_id", "iteration").unique().iter_rows():
                other = seen.setdefault((run_id, iteration), folder)
                if other != folder:
                    raise InputError(f"{folder} and {other}: both hold iteration {iteration} of {run_id}")
            writer.write_table(table.to_arrow().cast(schema), row_group_size=ROW_GROUP)
            rows += table.height
    return rows
