"""Row-level rules, each beside the same rule in plain Python: Great Expectations names the rows that break it."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.validation.quarantine import bad_rows, bad_trajectories
from tasks.validation.runner import Checks
from tasks.validation.suite import Check, Expectation, Finding, Suite

Row = dict[str, Any]
_RULES: list[tuple[str, dict[str, Any], Callable[[Row, list[Row]], bool]]] = [
    ("values_to_not_be_null", {"column": "number"}, lambda row, _: row["number"] is None),
    (
        "values_to_be_between",
        {"column": "number", "min_value": 0, "max_value": 2},
        lambda row, _: row["number"] is not None and not 0 <= row["number"] <= 2,
    ),
    (
        "values_to_be_between",
        {"column": "number", "min_value": 0, "strict_min": True, "max_value": 2, "strict_max": True},
        lambda row, _: row["number"] is not None and not 0 < row["number"] < 2,
    ),
    ("values_to_be_between", {"column": "count", "min_value": 1}, lambda row, _: row["count"] < 1),
    (
        "values_to_be_in_set",
        {"column": "word", "value_set": ["a", "b"]},
        lambda row, _: row["word"] not in (None, "a", "b"),
    ),
    ("values_to_not_be_in_set", {"column": "word", "value_set": ["c"]}, lambda row, _: row["word"] == "c"),
    ("values_to_match_regex", {"column": "word", "regex": "[ab]"}, lambda row, _: row["word"] == "c"),
    (
        "values_to_be_unique",
        {"column": "word"},
        lambda row, rows: row["word"] is not None and [other["word"] for other in rows].count(row["word"]) > 1,
    ),
    ("values_to_be_unique", {"column": "count"}, lambda row, rows: [r["count"] for r in rows].count(row["count"]) > 1),
]
_COMPOUND = "expect_compound_columns_to_be_unique"
_SCHEMA = {"number": pl.Float64, "word": pl.String, "count": pl.Int64, "key": pl.String}
_ROW = st.fixed_dictionaries(
    {
        "number": st.one_of(st.none(), st.sampled_from([-1.0, 0.0, 1.0, 2.0, 2.5, float("inf"), -float("inf")])),
        "word": st.one_of(st.none(), st.sampled_from(["a", "b", "c"])),
        "count": st.integers(0, 3),
        "key": st.sampled_from(["x", "y"]),
    }
)


def findings_of(table: pl.DataFrame, rules: list[Expectation]) -> list[Finding]:
    with tempfile.TemporaryDirectory() as folder:
        return Checks(Path(folder) / "docs").run([Check("raw", Suite(name="s", expectations=tuple(rules)), table)])


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(_ROW, min_size=1, max_size=12))
def test_the_rows_that_break_a_rule_are_named(rows: list[Row]) -> None:
    rules = [Expectation(type=f"expect_column_{kind}", kwargs=kwargs) for kind, kwargs, _ in _RULES]
    compound = Expectation(type=_COMPOUND, kwargs={"column_list": ["key", "count"]})
    found = {id(f.expectation): f.places for f in findings_of(pl.DataFrame(rows, schema=_SCHEMA), [*rules, compound])}
    for rule, (_, _, breaks) in zip(rules, _RULES, strict=True):
        expected = tuple(place for place, row in enumerate(rows) if breaks(row, rows))
        assert found.get(id(rule), ()) == expected, (rule, rows)
    pairs = [(row["key"], row["count"]) for row in rows]
    assert found.get(id(compound), ()) == tuple(p for p, pair in enumerate(pairs) if pairs.count(pair) > 1)


def rule(kind: str, **kwargs: Any) -> Expectation:
    return Expectation(type=f"expect_column_{kind}", kwargs={"column": "x", **kwargs}, notes="It is so.")


def test_reasons_name_suite_rule_and_value_and_join_over_a_trajectory() -> None:
    table = pl.DataFrame({"row_id": ["t#0", "t#1", "u#0"], "trajectory_id": ["t", "t", "u"], "x": [None, 5, 1]})
    bad = bad_rows(
        table, findings_of(table, [rule("values_to_not_be_null"), rule("values_to_be_between", max_value=2)])
    )
    assert bad.get_column("row_id").to_list() == ["t#0", "t#1"]
    (row,) = bad_trajectories(bad).iter_rows(named=True)
    first, second = row["reason"].split("\n")
    assert first == "t#0: s: It is so (expect_column_values_to_not_be_null on x: found null)"
    assert second == "t#1: s: It is so (expect_column_values_to_be_between on x: found 5)"


def test_a_row_that_breaks_two_rules_has_both_reasons() -> None:
    table = pl.DataFrame({"row_id": ["a", "b"], "pair_id": ["a", "b"], "x": [5, 1]})
    rules = [rule("values_to_be_between", max_value=2), rule("values_to_be_in_set", value_set=[1])]
    (row,) = bad_rows(table, findings_of(table, rules)).iter_rows(named=True)
    assert row["reason"].count("found 5") == 2
    assert row["pair_id"] == "a"


def test_a_rule_about_a_batch_or_a_missing_column_takes_no_row_out() -> None:
    table = pl.DataFrame({"row_id": ["a"], "x": [1]})
    findings = findings_of(
        table, [rule("values_to_not_be_null", column="gone"), rule("max_to_be_between", max_value=0)]
    )
    assert len(findings) == 2
    assert bad_rows(table, findings).is_empty()
