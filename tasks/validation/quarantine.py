"""Takes bad rows out of a data set and keeps them, each with the reason.

A quarantine is a published folder with the same tables as its data set, restricted to what was taken out, and one more
column `reason`. Of a trajectory with one bad turn all turns are taken out: a history with a hole is none.
"""

from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tasks.pipeline.store import publish

INDIRECT_REASON = "another row of the same trajectory is bad"


def bad_trajectories(*tables: pl.DataFrame) -> pl.DataFrame:
    """Return `trajectory_id` and `reason`, one row for each trajectory named in any table of bad rows (rows.bad_rows)."""
    together = pl.concat([table.select("trajectory_id", "row_id", "reason") for table in tables])
    return (
        together.group_by("trajectory_id", maintain_order=True)
        .agg(pl.concat_str("row_id", pl.lit(": "), "reason").str.join("\n").alias("reason"))
        .sort("trajectory_id")
    )


def split_file(
    source: Path, key: str, reasons: dict[str, str], kept: Path | None, taken: Path | None
) -> tuple[int, int]:
    """Split a Parquet file by whether `key` is in `reasons`; write the rest to `kept` and the bad rows to `taken`.

    The schema and its metadata stay as they are; `taken` has one more column, `reason`. Returns (rows kept, rows taken).
    """
    table = pq.read_table(source)
    is_bad = [value in reasons for value in table[key].to_pylist()]
    bad_rows = table.filter(pa.array(is_bad, pa.bool_()))
    good_rows = table.filter(pa.array([not bad for bad in is_bad], pa.bool_()))
    if kept is not None:
        pq.write_table(good_rows, kept, compression="zstd")
    if taken is not None:
        why = [reasons[value] for value in bad_rows[key].to_pylist()]
        pq.write_table(bad_rows.append_column("reason", pa.array(why, pa.string())), taken, compression="zstd")
    return good_rows.num_rows, bad_rows.num_rows


def write_quarantine(folder: Path, files: list[Path], key: str, reasons: dict[str, str], origin: str) -> None:
    """Publish the bad rows of some tables at `folder`; `origin` is the data set that they were taken from."""
    with publish(folder, {"origin": origin, key: len(reasons)}) as partial:
        for file in files:
            split_file(file, key, reasons, None, partial / file.name)
