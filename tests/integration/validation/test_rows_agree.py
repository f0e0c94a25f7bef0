"""The row-level rules in Polars mean what Great Expectations means by them, nulls included."""

import tempfile
from pathlib import Path

import polars as pl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.validation.quarantine import breaks
from tasks.validation.runner import run_checks
from tasks.validation.suite import Check, Expectation, Suite

_RULES = [
    Expectation(type="expect_column_values_to_not_be_null", kwargs={"column": "number"}),
    Expectation(type="expect_column_values_to_be_between", kwargs={"column": "number", "min_value": 0, "max_value": 2}),
    Expectation(
        type="expect_column_values_to_be_between",
        kwargs={"column": "number", "min_value": 0, "strict_min": True, "max_value": 2, "strict_max": True},
    ),
    Expectation(type="expect_column_values_to_be_between", kwargs={"column": "count", "min_value": 1}),
    Expectation(type="expect_column_values_to_be_in_set", kwargs={"column": "word", "value_set": ["a", "b"]}),
    Expectation(type="expect_column_values_to_not_be_in_set", kwargs={"column": "word", "value_set": ["c"]}),
    Expectation(type="expect_column_values_to_be_unique", kwargs={"column": "word"}),
    Expectation(type="expect_column_values_to_be_unique", kwargs={"column": "count"}),
    Expectation(type="expect_compound_columns_to_be_unique", kwargs={"column_list": ["key", "count"]}),
]
_ROW = st.fixed_dictionaries(
    {
        "number": st.one_of(st.none(), st.sampled_from([-1.0, 0.0, 1.0, 2.0, 2.5, float("inf"), -float("inf")])),
        "word": st.one_of(st.none(), st.sampled_from(["a", "b", "c"])),
        "count": st.integers(0, 3),
        "key": st.sampled_from(["x", "y"]),
    }
)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(_ROW, min_size=1, max_size=12))
def test_polars_and_great_expectations_count_the_same_rows(rows: list[dict[str, object]]) -> None:
    schema = {"number": pl.Float64, "word": pl.String, "count": pl.Int64, "key": pl.String}
    table = pl.DataFrame(rows, schema=schema).with_row_index("row_id").with_columns(pl.col("row_id").cast(pl.String))
    with tempfile.TemporaryDirectory() as folder:
        findings = run_checks([Check("raw", Suite(name="s", expectations=tuple(_RULES)), table)], Path(folder) / "docs")
    found = {id(finding.expectation): finding.rows for finding in findings}
    for rule in _RULES:
        assert found.get(id(rule), 0) == table.filter(breaks(rule)).height, (rule, rows)
