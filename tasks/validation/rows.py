"""Row-level rules, read off the suites: which rows break which expectation, computed in Polars.

Great Expectations says *that* rows are bad and shows it; which rows go to quarantine is computed here, from the same
suite files, so that the two cannot drift apart. An expectation is row-level if its type is one of `ROW_LEVEL` and it is
critical, without `mostly` and without `row_condition`. Every other expectation is a property of the batch.

As in Great Expectations, a null breaks `expect_column_values_to_not_be_null` and no other rule.
"""

from typing import Any

import polars as pl

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
    """True where a row that breaks the rule can be told apart and taken out."""
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
    """A rule about a column that is not there cannot take rows out; Great Expectations reports it for the batch."""
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
