"""Quarantine: rows that break a row-level rule are taken out of a data set and kept, each with its reason.

Great Expectations says which rows are bad (`Finding.places`). An expectation about single rows is row-level if it is
critical, without `mostly` and `row_condition`; others are properties of the batch. A null breaks
`expect_column_values_to_not_be_null` alone.

A quarantine is a published folder with the tables of its data set, restricted to the bad rows, and a column `reason`.
All turns of a trajectory go with a bad one: a history with a hole cannot be trained on.
"""

from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tasks.pipeline.store import publish
from tasks.validation.suite import Expectation, Finding

_OF_ROWS = ("expect_column_values_", "expect_column_value_", "expect_column_pair_values_", "expect_compound_columns_")
"""Beginnings of the types of expectations that name the rows which break them."""


def is_row_level(expectation: Expectation) -> bool:
    """True if single rows that break the rule can be taken out."""
    partial = float(expectation.kwargs.get("mostly", 1)) < 1 or "row_condition" in expectation.kwargs
    return expectation.type.startswith(_OF_ROWS) and expectation.severity == "critical" and not partial


def bad_rows(projection: pl.DataFrame, findings: Sequence[Finding]) -> pl.DataFrame:
    """Return one row for each bad row of a projection: `row_id`, `trajectory_id` or `pair_id`, and `reason`.

    `findings`: those of the projection's check, in the order of its rules.
    """
    reasons: dict[int, str] = {}
    for finding in findings:
        if not is_row_level(finding.expectation):
            continue
        for place in finding.places:
            reason = _reason(finding.expectation, projection, place)
            reasons[place] = f"{reasons[place]}; {reason}" if place in reasons else f"{finding.suite}: {reason}"
    kept = [name for name in ("row_id", "trajectory_id", "pair_id") if name in projection.columns]
    places = sorted(reasons)
    told = pl.Series("reason", [reasons[place] for place in places], pl.String)
    return projection.select(kept)[places].with_columns(told)


def _reason(rule: Expectation, projection: pl.DataFrame, place: int) -> str:
    values = projection.select(rule.column.split(", ")).row(place)
    found = ", ".join("null" if value is None else str(value) for value in values)
    return f"{rule.meaning} ({rule.type} on {rule.column}: found {found})"


def bad_trajectories(*tables: pl.DataFrame) -> pl.DataFrame:
    """Return `trajectory_id` and `reason`, one row for each trajectory in any of these tables of `bad_rows`."""
    together = pl.concat([table.select("trajectory_id", "row_id", "reason") for table in tables])
    return (
        together.group_by("trajectory_id", maintain_order=True)
        .agg(pl.concat_str("row_id", pl.lit(": "), "reason").str.join("\n").alias("reason"))
        .sort("trajectory_id")
    )


def split_file(
    source: Path, key: str, reasons: dict[str, str], kept: Path | None, taken: Path | None
) -> tuple[int, int]:
    """Write the rows in `reasons` to `taken`, with the column `reason`, the others to `kept`; return both counts."""
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
