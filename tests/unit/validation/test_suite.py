"""Suites as files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernels_eval.errors import InputError
from tasks.validation.checks import Failure, ValidationFailed
from tasks.validation.quarantine import is_row_level
from tasks.validation.suite import SHIPPED_SUITES, SUITE_NAMES, Expectation, load_suite, reward_range

_PARAMETERS = {"minimum_reward": 0.0, "maximum_reward": 2.3}


@pytest.mark.parametrize("name", SUITE_NAMES)
def test_shipped_suites_load_and_every_rule_says_what_it_means(name: str) -> None:
    suite = load_suite(name, None, _PARAMETERS)
    assert suite.name == name
    assert suite.expectations
    for rule in suite.expectations:
        assert rule.notes
        assert not isinstance(rule.kwargs.get("max_value"), dict)


def test_every_shipped_file_is_named() -> None:
    assert {path.stem for path in SHIPPED_SUITES.glob("*.json")} == set(SUITE_NAMES)


def test_an_edited_folder_replaces_only_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "groups.json").write_text(
        json.dumps({"name": "groups", "expectations": [], "meta": {"x": 1}, "id": None})
    )
    assert load_suite("groups", str(tmp_path)).expectations == ()
    assert load_suite("problems", str(tmp_path)) == load_suite("problems", None)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "expected a Great Expectations suite in JSON"),
        ('{"name": "groups"}', "expectations: found nothing, expected a value"),
        ('{"name": "groups", "expectations": [{"type": "t"}]}', "expectations, item 1.kwargs: found nothing"),
        (
            '{"name": "g", "expectations": [{"type": "t", "kwargs": {"max_value": {"$PARAMETER": "speed"}}}]}',
            "unknown parameter 'speed'; known here: maximum_reward, minimum_reward",
        ),
    ],
)
def test_broken_suites_are_told_with_their_path(content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "groups.json").write_text(content)
    with pytest.raises(InputError, match=r"groups\.json") as caught:
        load_suite("groups", str(tmp_path), _PARAMETERS)
    assert words in str(caught.value)


def test_a_missing_folder_is_told() -> None:
    with pytest.raises(InputError, match=r"validation\.suites: expected a folder"):
        load_suite("groups", "/nowhere")


@pytest.mark.parametrize(
    "change",
    [
        {"kwargs": {"column": "a", "mostly": 0.9}},
        {"kwargs": {"column": "a", "row_condition": "b>1"}},
        {"severity": "warning"},
    ],
)
def test_partial_and_lenient_rules_take_no_rows_out(change: dict[str, object]) -> None:
    rule = Expectation(type="expect_column_values_to_not_be_null", kwargs={"column": "a"})
    assert is_row_level(rule)
    assert not is_row_level(rule.model_copy(update=change))
    assert not is_row_level(rule.model_copy(update={"type": "expect_column_mean_to_be_between"}))


def test_reward_ranges_come_from_the_functions() -> None:
    assert reward_range("kernelbench")["maximum_reward"] == pytest.approx(2.3, abs=1e-6)
    assert reward_range("kernelbench")["minimum_reward"] == pytest.approx(0.0, abs=1e-6)
    with pytest.raises(InputError):
        reward_range("applause")


def test_a_failure_is_one_sentence() -> None:
    failure = Failure(
        data="d", suite="s", expectation="e", column="c", found="1 row", expected="none", example="r1", consequence="so"
    )
    assert str(ValidationFailed(failure)) == "d: suite 's': e on column c: expected none, found 1 row, e.g. row r1; so"


def test_importing_the_checks_does_not_import_great_expectations() -> None:
    code = "import sys, tasks.validation.checks; assert 'great_expectations' not in sys.modules and 'pandas' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
