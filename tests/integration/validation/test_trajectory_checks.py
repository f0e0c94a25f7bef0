"""Every rule about trajectories really fails on data that breaks it; bad rows are taken out, and nothing else is."""

import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest

from kernels_eval.errors import InputError
from tasks.pipeline.references import TrajectoryBatchRef
from tasks.pipeline.store import read_manifest
from tasks.trajectories.reader import read_trajectories, read_turns
from tasks.validation.checks import ValidationFailed, validate_trajectories
from tasks.validation.config import ValidationConfig
from tasks.validation.projections import trajectories_projection, turns_projection
from tasks.validation.quarantine import bad_rows, is_row_level
from tasks.validation.runner import Checks
from tasks.validation.suite import Check, load_suite

Rows = list[dict[str, Any]]


def check(
    raw: TrajectoryBatchRef, folder: Path, fraction: float = 0.05, suites: str | None = None
) -> TrajectoryBatchRef:
    config = ValidationConfig(max_quarantined_fraction=fraction, suites=suites)
    return validate_trajectories(
        raw, config, 0.4, "kernelbench", folder / "published", folder / "quarantine", folder / "docs"
    )


def put(column: str, value: Any, row: int = 0) -> Callable[[Rows], object]:
    """Change one cell."""
    return lambda rows: rows[row].__setitem__(column, value)


def put_verdict(row: int = 0, **fields: Any) -> Callable[[Rows], object]:
    """Change fields of one verdict (rows 0, 1, 2 are one trajectory: wrong, correct 1.5×, correct 1.0×)."""
    return lambda rows: rows[row]["verdict"].update(fields)


BROKEN_TURNS: dict[str, tuple[str, Callable[[Rows], object]]] = {
    "duplicate turn": ("trajectory_id, turn_index", lambda rows: rows.append(dict(rows[0]))),
    "gap": ("turn_gap", lambda rows: rows.pop(1)),
    "late start": ("turn_gap", lambda rows: rows.pop(0)),
    "orphan": ("without_trajectory", put("trajectory_id", "nobody", 3)),
    "no role": ("role", put("role", None)),
    "misnamed role": ("misnamed_role", put("role", "<narrator>")),
    "no verdict": ("status", put("verdict", None)),
    "unknown status": ("status", put_verdict(status="perfect")),
    "correct flag without status": ("contradictory_verdict", put_verdict(correct=True)),
    "correct without compiled": ("contradictory_verdict", put_verdict(1, compiled=False)),
    "zero speedup": ("speedup", put_verdict(1, speedup=0.0)),
    "infinite speedup": ("speedup", put_verdict(1, speedup=math.inf)),
    "speedup of a wrong kernel": ("speedup_without_correct", put_verdict(speedup=2.0, timing_source="gpu")),
    "unmarked speedup": ("unmarked_speedup", put_verdict(1, timing_source=None)),
    "no prompt": ("prompt_tokens", put("prompt_token_ids", [])),
    "no response": ("response_tokens", put("response_token_ids", None)),
    "negative token": ("negative_token_ids", put("response_token_ids", [4, -1])),
    "missing log-probability": ("missing_logprobs", put("response_logprobs", [-0.5])),
    "one log-probability too many": ("missing_logprobs", put("response_logprobs", [-0.5, -0.5, -0.5])),
    "null log-probabilities": ("missing_logprobs", put("response_logprobs", None)),
    "NaN log-probability": ("nonfinite_logprobs", put("response_logprobs", [-0.5, math.nan])),
    "null log-probability": ("nonfinite_logprobs", put("response_logprobs", [-0.5, None])),
    "infinite log-probability": ("nonfinite_logprobs", put("response_logprobs", [-math.inf, -0.5])),
    "positive log-probability": ("highest_logprob", put("response_logprobs", [0.5, -0.5])),
    "null reward": ("missing_reward", put("reward", None)),
    "NaN reward": ("missing_reward", put("reward", math.nan)),
    "reward of a fault": (
        "reward_of_fault",
        lambda rows: next(r for r in rows if r["reward"] is None).update(reward=0.0),
    ),
    "reward above the range": ("reward", put("reward", 2.4)),
    "reward below the range": ("reward", put("reward", -0.1)),
    "infinite reward": ("reward", put("reward", math.inf)),
    "reward of another verdict": ("reward_error", put("reward", 0.3)),
    "null return": ("missing_return", put("return", None)),
    "NaN return": ("missing_return", put("return", math.nan)),
    "wrong return": ("return_error", put("return", 0.5)),
    "infinite return": ("return_error", put("return", math.inf)),
    "negative seconds": ("negative_seconds", put("evaluation_s", -1.0)),
}
BROKEN_TRAJECTORIES: dict[str, tuple[str, Callable[[Rows], object]]] = {
    "duplicate id": ("trajectory_id", lambda rows: rows.append(dict(rows[0]))),
    "no id": ("trajectory_id", put("trajectory_id", None)),
    "no problem": ("problem_id", put("problem_id", None)),
    "no group": ("group_id", put("group_id", None)),
    "sample twice": ("group_id, sample_index", put("sample_index", 1)),
    "two problems in a group": ("problems_in_group", put("problem_digest", "other")),
    "no turns": ("turns", put("turns", 0)),
    "turns missing": ("missing_turns", put("turns", 5)),
    "no end": ("termination", put("termination", None)),
    "unknown end": ("termination", put("termination", "boredom")),
    "unknown final status": ("final_status", lambda rows: rows[0]["final_verdict"].update(status="perfect")),
    "other final verdict": ("final_verdict_differs", lambda rows: rows[0]["final_verdict"].update(status="timeout")),
    "other final reward": ("final_verdict_differs", put("final_reward", 1.0)),
    "wrong return": ("return_error", put("return", 9.0)),
    "null return": ("missing_return", put("return", None)),
}
_PARAMETERS = {"minimum_reward": 0.0, "maximum_reward": 2.3}
_CASES = [("turns", name, *case) for name, case in BROKEN_TURNS.items()] + [
    ("trajectories", name, *case) for name, case in BROKEN_TRAJECTORIES.items()
]


def test_a_good_batch_is_published_as_it_is(good: TrajectoryBatchRef, tmp_path: Path) -> None:
    published = check(good, tmp_path)
    assert read_turns(published).equals(read_turns(good))
    assert read_trajectories(published).equals(read_trajectories(good))
    assert (published.trajectories, published.turns) == (40, 80)
    assert published.digest == good.digest
    assert not (tmp_path / "quarantine").exists()
    assert (tmp_path / "docs" / "index.html").exists()
    assert read_manifest(published.path)["metadata"] == {"policy": "p", "validated": good.uri, "quarantined": 0}  # pyright: ignore


def project(raw: TrajectoryBatchRef) -> dict[str, pl.DataFrame]:
    turns, trajectories = read_turns(raw), read_trajectories(raw)
    return {
        "turns": turns_projection(turns, trajectories, 0.4, "kernelbench"),
        "trajectories": trajectories_projection(trajectories, turns, 0.4),
    }


@pytest.mark.parametrize("table", ["turns", "trajectories"])
def test_every_rule_finds_the_rows_that_break_it(table: str, broken: Any, tmp_path: Path) -> None:
    """All broken tables at once, ids made distinct."""
    suite = load_suite(table, None, _PARAMETERS)
    parts: dict[str, pl.DataFrame] = {}
    for number, (kind, _, _, change) in enumerate(_CASES):
        if kind == table:
            part = project(broken(**{table: change}))[table]
            names = [name for name in ("row_id", "trajectory_id", "group_id") if name in part.columns]
            parts[f"{number}/"] = part.with_columns((pl.lit(f"{number}/") + pl.col(name)).alias(name) for name in names)
    together = pl.concat(parts.values())
    bad = bad_rows(together, Checks(tmp_path).run([Check("raw", suite, together)]))
    for prefix in parts:
        _, name, column, _ = _CASES[int(prefix.removesuffix("/"))]
        reasons = bad.filter(pl.col("trajectory_id").fill_null(prefix).str.starts_with(prefix))["reason"].to_list()
        assert any(f" on {column}: " in reason for reason in reasons), (name, reasons)


def test_every_row_level_rule_is_broken_by_some_case() -> None:
    tested = {("turns", column) for column, _ in BROKEN_TURNS.values()}
    tested |= {("trajectories", column) for column, _ in BROKEN_TRAJECTORIES.values()}
    rules = {
        (name, rule.column)
        for name in ("turns", "trajectories")
        for rule in load_suite(name, None, _PARAMETERS).expectations
        if is_row_level(rule)
    }
    assert rules == tested


def test_a_bad_turn_takes_its_whole_trajectory_out_and_nothing_else(broken: Any, tmp_path: Path) -> None:
    raw = broken(turns=put("response_logprobs", [-0.5, math.nan], 1))
    published = check(raw, tmp_path)
    assert (published.trajectories, published.turns) == (39, 77)
    left, all_turns = read_turns(published), read_turns(raw)
    assert left.equals(all_turns.filter(pl.col("trajectory_id") != "g0-0"))
    taken = pl.read_parquet(tmp_path / "quarantine" / "turns.parquet")
    assert taken["trajectory_id"].to_list() == ["g0-0"] * 3
    assert "g0-0#1: turns: Log-probabilities are finite numbers" in taken["reason"][0]
    assert "found 1" in taken["reason"][0]
    assert pl.read_parquet(tmp_path / "quarantine" / "trajectories.parquet").height == 1
    metadata = read_manifest(published.path)["metadata"]  # pyright: ignore
    assert metadata["quarantined"] == 1
    assert pq.read_schema(published.path / "turns.parquet").metadata[b"kernelmill.schema_version"] == b"3"


def test_too_many_bad_rows_stop_the_flow_and_say_why(broken: Any, tmp_path: Path) -> None:
    def spoil(rows: Rows) -> None:
        for row in rows[:20]:
            row["response_logprobs"] = [-0.5]

    with pytest.raises(ValidationFailed) as caught:
        check(broken(turns=spoil), tmp_path)
    message = str(caught.value)
    for words in (
        "suite 'turns'",
        "expect_column_values_to_be_between",
        "column missing_logprobs",
        "20 of 80 rows",
        "e.g. row g0-0#0",
        "max_quarantined_fraction = 0.05",
        "index.html",
    ):
        assert words in message
    assert isinstance(caught.value, InputError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == message


def without_reward(rows: Rows) -> None:
    """Make every kernel of either table one that does not compile: all rewards and returns are 0."""
    verdict, reward = ("verdict", "reward") if "verdict" in rows[0] else ("final_verdict", "final_reward")
    failed = next(row[verdict] for row in rows if row[verdict]["status"] == "compile_error")
    for row in rows:
        row.update({verdict: failed, reward: 0.0, "return": 0.0})


def test_a_batch_without_anything_to_learn_is_refused(broken: Any, tmp_path: Path) -> None:
    with pytest.raises(
        ValidationFailed, match="suite 'groups': expect_column_max_to_be_between on column largest_spread"
    ):
        check(broken(turns=without_reward, trajectories=without_reward), tmp_path)


def test_a_heldout_batch_needs_nothing_to_learn_from(broken: Any, tmp_path: Path) -> None:
    raw = broken(turns=without_reward, trajectories=without_reward, split="heldout")
    assert check(raw, tmp_path).trajectories == 40


def test_two_policies_in_one_batch_are_refused(broken: Any, tmp_path: Path) -> None:
    with pytest.raises(
        ValidationFailed, match="expect_column_unique_value_count_to_be_between on column policy_digest"
    ):
        check(broken(trajectories=put("policy_digest", "another")), tmp_path)


def test_nothing_left_is_refused(broken: Any, tmp_path: Path) -> None:
    def spoil(rows: Rows) -> None:
        for row in rows:
            row["reward"] = None

    with pytest.raises(ValidationFailed):
        check(broken(turns=spoil), tmp_path, fraction=1.0)


def test_the_return_depends_on_gamma(good: TrajectoryBatchRef, tmp_path: Path) -> None:
    with pytest.raises(ValidationFailed, match="return_error"):
        validate_trajectories(
            good, ValidationConfig(), 0.5, "kernelbench", tmp_path / "p", tmp_path / "q", tmp_path / "d"
        )


def test_edited_suites_decide(good: TrajectoryBatchRef, tmp_path: Path) -> None:
    edited = tmp_path / "suites"
    edited.mkdir()
    rule = (
        '{"type": "expect_column_mean_to_be_between", "kwargs": {"column": "reward", "min_value": 2}, "severity": "%s"}'
    )
    (edited / "turns.json").write_text(f'{{"name": "turns", "expectations": [{rule % "critical"}]}}')
    with pytest.raises(ValidationFailed, match="expect_column_mean_to_be_between on column reward"):
        check(good, tmp_path, suites=str(edited))
    (edited / "turns.json").write_text(f'{{"name": "turns", "expectations": [{rule % "warning"}]}}')
    assert check(good, tmp_path, suites=str(edited)).trajectories == 40


def test_a_rule_about_a_column_that_is_not_there_fails(good: TrajectoryBatchRef, tmp_path: Path) -> None:
    edited = tmp_path / "suites"
    edited.mkdir()
    rule = '{"type": "expect_column_values_to_be_between", "kwargs": {"column": "rewrad", "min_value": 0}}'
    (edited / "turns.json").write_text(f'{{"name": "turns", "expectations": [{rule}]}}')
    with pytest.raises(ValidationFailed, match="rewrad"):
        check(good, tmp_path, suites=str(edited))


def test_corrupt_tables_are_input_errors(good: TrajectoryBatchRef, tmp_path: Path) -> None:
    (good.path / "turns.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(InputError, match=r"turns\.parquet"):
        check(good, tmp_path)
