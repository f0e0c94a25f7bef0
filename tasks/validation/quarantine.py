"""Quarantine: rows that break a row-level rule are taken out of a data set and kept, each with its reason.

Great Expectations reports that rows are bad; this module computes which ones, in Polars, from the same suite files. An
expectation is row-level if its type is in `ROW_LEVEL` and it is critical, without `mostly` and `row_condition`; others
are properties of the batch. As in Great Expectations, a null breaks `expect_column_values_to_not_be_null` alone.

A quarantine is a published folder with the tables of its data set, restricted to the bad rows, and a column `reason`.
All turns of a trajectory go with a bad one: a history with a hole cannot be trained on.
"""

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tasks.pipeline.store import publish
from tasks.validation.suite import Expectation, Suite

ROW_LEVEL = (
    "expect_column_values_to_not_be_null",
    "expect_column_values_to_be_between",
    "expect_column_values_to_be_in_set",
    "expect_column_values_to_not_be_in_set",
    "expect_column_values_to_be_unique",
    "expect_compound_columns_to_be_unique",
)


def is_row_level(expectation: Expectation) -> bool:
    """True if single rows that break the rule can be taken out."""
    partial = float(expectation.kwargs.get("mostly", 1)) < 1 or "row_condition" in expectation.kwargs
    return expectation.type in ROW_LEVEL and expectation.severity == "critical" and not partial


def breaks(expectation: Expectation) -> pl.Expr:
    """Return a boolean expression: the row breaks this row-level rule."""
    kwargs = expectation.kwargs
    if expectation.type == "expect_compound_columns_to_be_unique":
        return pl.struct(kwargs["column_list"]).is_duplicated()
    column = pl.col(kwargs["column"])
    match expectation.type:
        case "expect_column_values_to_not_be_null":
            return column.is_null()
        case "expect_column_values_to_be_between":
            return ~_between(column, kwargs)
        case "expect_column_values_to_be_in_set":
            return column.is_not_null() & ~column.is_in(kwargs["value_set"])
        case "expect_column_values_to_not_be_in_set":
            return column.is_not_null() & column.is_in(kwargs["value_set"])
        case "expect_column_values_to_be_unique":
            return column.is_not_null() & column.is_duplicated()
        case _:
            raise ValueError(f"{expectation.type} is not row-level")


def bad_rows(projection: pl.DataFrame, suite: Suite) -> pl.DataFrame:
    """Return one row for each bad row of the projection: `row_id`, `trajectory_id` or `pair_id`, and `reason`."""
    rules = [rule for rule in suite.expectations if is_row_level(rule) and _columns_exist(rule, projection)]
    kept = [name for name in ("row_id", "trajectory_id", "pair_id") if name in projection.columns]
    if not rules:
        return projection.clear().select(*kept, pl.lit("").alias("reason"))
    reasons = [pl.when(breaks(rule)).then(_reason(rule)) for rule in rules]
    return (
        projection.select(*kept, pl.concat_str(reasons, separator="; ", ignore_nulls=True).alias("reason"))
        .filter(pl.col("reason") != "")
        .with_columns(pl.concat_str(pl.lit(f"{suite.name}: "), "reason").alias("reason"))
    )


def _columns_exist(rule: Expectation, projection: pl.DataFrame) -> bool:
    """True if the projection has the rule's columns. If not, Great Expectations reports it for the batch."""
    return all(name in projection.columns for name in rule.column.split(", "))


def _between(column: pl.Expr, kwargs: dict[str, Any]) -> pl.Expr:
    inside = pl.lit(True)
    if kwargs.get("min_value") is not None:
        low = kwargs["min_value"]
        inside = inside & ((column > low) if kwargs.get("strict_min") else (column >= low))
    if kwargs.get("max_value") is not None:
        high = kwargs["max_value"]
        inside = inside & ((column < high) if kwargs.get("strict_max") else (column <= high))
    return inside.fill_null(True)


def _reason(rule: Expectation) -> pl.Expr:
    values = [pl.col(name).cast(pl.String).fill_null("null") for name in rule.column.split(", ")]
    found = pl.concat_str(values, separator=", ")
    return pl.concat_str(pl.lit(f"{rule.meaning} ({rule.type} on {rule.column}: found "), found, pl.lit(")"))


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
