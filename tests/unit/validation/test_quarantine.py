"""Rows that break a rule: compared with the rule in plain Python; split files keep schema, order and metadata."""

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.pipeline.store import read_manifest
from tasks.validation.quarantine import bad_rows, bad_trajectories, breaks, split_file, write_quarantine
from tasks.validation.suite import Expectation, Suite

VALUES = st.lists(st.one_of(st.none(), st.integers(-3, 3)), min_size=1, max_size=8)


def rule(kind: str, **kwargs: Any) -> Expectation:
    return Expectation(type=f"expect_column_values_to_{kind}", kwargs={"column": "x", **kwargs}, notes="It is so.")


@given(
    VALUES,
    st.one_of(st.none(), st.integers(-3, 3)),
    st.one_of(st.none(), st.integers(-3, 3)),
    st.booleans(),
    st.booleans(),
)
def test_a_range_is_broken_by_values_outside_and_never_by_nulls(
    values: list[int | None], low: int | None, high: int | None, strict_low: bool, strict_high: bool
):
    between = rule("be_between", min_value=low, max_value=high, strict_min=strict_low, strict_max=strict_high)
    table = pl.DataFrame({"x": values}, schema={"x": pl.Int64})
    found = table.with_columns(broken=breaks(between)).get_column("broken").to_list()
    expected = [
        value is not None
        and (
            (low is not None and (value < low or (strict_low and value == low)))
            or (high is not None and (value > high or (strict_high and value == high)))
        )
        for value in values
    ]
    assert found == expected


@given(VALUES)
def test_nulls_sets_and_uniqueness(values: list[int | None]):
    table = pl.DataFrame({"x": values}, schema={"x": pl.Int64})

    def broken(expectation: Expectation) -> list[bool]:
        return table.select(breaks(expectation)).to_series().to_list()

    assert broken(rule("not_be_null")) == [value is None for value in values]
    assert broken(rule("be_in_set", value_set=[1, 2])) == [value not in (None, 1, 2) for value in values]
    assert broken(rule("not_be_in_set", value_set=[1, 2])) == [value in (1, 2) for value in values]
    assert broken(rule("be_unique")) == [value is not None and values.count(value) > 1 for value in values]


def test_a_rule_about_a_batch_has_no_rows():
    with pytest.raises(ValueError, match="is not row-level"):
        breaks(Expectation(type="expect_column_mean_to_be_between", kwargs={"column": "x"}))


def test_reasons_name_suite_rule_and_value_and_join_over_a_trajectory():
    suite = Suite(name="turns", expectations=(rule("not_be_null"), rule("be_between", max_value=2)))
    table = pl.DataFrame({"row_id": ["t#0", "t#1", "u#0"], "trajectory_id": ["t", "t", "u"], "x": [None, 5, 1]})
    bad = bad_rows(table, suite)
    assert bad.get_column("row_id").to_list() == ["t#0", "t#1"]
    (row,) = bad_trajectories(bad).iter_rows(named=True)
    first, second = row["reason"].split("\n")
    assert first.startswith("t#0: turns: It is so (expect_column_values_to_not_be_null on x: found null)")
    assert second.endswith("(expect_column_values_to_be_between on x: found 5)")


def test_a_rule_about_a_missing_column_takes_no_row_out():
    suite = Suite(name="turns", expectations=(rule("not_be_null", column="gone"),))
    assert bad_rows(pl.DataFrame({"row_id": ["a"], "x": [1]}), suite).is_empty()


def test_a_file_is_split_with_its_schema_and_metadata(tmp_path: Path):
    schema = pa.schema([("id", pa.string()), ("x", pa.int32())], metadata={b"version": b"3"})
    source = tmp_path / "table.parquet"
    pq.write_table(pa.table({"id": ["a", "b", "c"], "x": [1, 2, 3]}, schema=schema), source)
    assert split_file(source, "id", {"b": "too small"}, tmp_path / "kept", tmp_path / "taken") == (2, 1)
    kept, taken = pq.read_table(tmp_path / "kept"), pq.read_table(tmp_path / "taken")
    assert kept.schema.equals(schema, check_metadata=True)
    assert kept["id"].to_pylist() == ["a", "c"]
    assert taken.to_pylist() == [{"id": "b", "x": 2, "reason": "too small"}]
    write_quarantine(tmp_path / "quarantine", [source], "id", {"b": "too small"}, "origin")
    assert pq.read_table(tmp_path / "quarantine" / "table.parquet").equals(taken)
    manifest = read_manifest(tmp_path / "quarantine")
    assert manifest is not None
    assert manifest["metadata"] == {"origin": "origin", "id": 1}
