"""The tables that the UI shows of published artifacts: right counts, no nesting, never more than a page."""

import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.pipeline.prefect_artifacts import artifact_key, rounded, table_of
from tasks.pipeline.references import CheckpointRef, EvaluationRef, ProblemSetRef, SftDataRef, TrajectoryBatchRef


def test_verdicts_are_counted_by_turn(tmp_path: Path):
    turns = [(0, "correct", 1.0), (0, "incorrect", 0.1), (1, "incorrect", 0.1), (1, "infrastructure_error", None)]
    pl.DataFrame(
        [{"turn_index": turn, "verdict": {"status": status}, "reward": reward} for turn, status, reward in turns]
    ).write_parquet(tmp_path / "turns.parquet")
    batch = TrajectoryBatchRef(uri=str(tmp_path), digest="d", run_id="r", iteration=0, trajectories=2, turns=4)
    title, rows = table_of(batch)
    assert title == "verdicts"
    assert rows[0] == {
        "verdict": "incorrect", "turn 1": 1, "turn 2": 1, "all": 2, "share": "50.0 %", "mean reward": 0.1,
    }  # fmt: skip
    assert {row["verdict"]: (row["turn 1"], row["turn 2"]) for row in rows} == {
        "incorrect": (1, 1),
        "correct": (1, 0),
        "infrastructure_error": (0, 1),
    }
    assert [row["mean reward"] for row in rows if row["verdict"] == "infrastructure_error"] == ["–"]


@settings(deadline=None)
@given(steps=st.integers(1, 3000))
def test_long_trainings_are_shown_on_one_page_with_both_ends(steps: int, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("policy")
    pl.DataFrame({"step": list(range(steps)), "loss": [0.5] * steps, "seconds": [1.0] * steps}).write_parquet(
        folder / "metrics.parquet"
    )
    _, rows = table_of(CheckpointRef(uri=str(folder), digest="d"))
    assert len(rows) <= 26
    assert (rows[0]["step"], rows[-1]["step"]) == (0, steps - 1)
    assert len({row["step"] for row in rows}) == len(rows)
    assert set(rows[0]) == {"step", "loss"}


def test_a_policy_without_metrics_has_no_table(tmp_path: Path):
    assert table_of(CheckpointRef(uri=str(tmp_path), digest="d"))[1] == []


def test_problems_by_level_and_pairs_by_style(tmp_path: Path):
    pl.DataFrame(
        {"level": [1, 1, 2], "split": ["train", "heldout", "train"], "composition": ["a", "b", "c"]}
    ).write_parquet(tmp_path / "problems.parquet")
    _, rows = table_of(ProblemSetRef(uri=str(tmp_path), digest="d", train=2, heldout=1))
    assert [(row["level"], row["to train on"], row["held out"]) for row in rows] == [(1, 1, 1), (2, 1, 0)]
    pairs = [("fused", True, 2.0), ("fused", False, None), ("steps", True, 0.5)]
    pl.DataFrame(
        [
            {"kind": "direct", "style": style, "used": good, "verdict": {"correct": good, "speedup": speedup}}
            for style, good, speedup in pairs
        ]
    ).write_parquet(tmp_path / "pairs.parquet")
    _, rows = table_of(SftDataRef(uri=str(tmp_path), digest="d", pairs=2, verified=True))
    assert rows[0] == {
        "kind": "direct", "style": "fused", "pairs": 2, "used": 1, "correct": "50.0 %", "median speed-up": 2.0,
    }  # fmt: skip


def test_figures_stand_with_their_intervals(tmp_path: Path):
    overall = {"n": 3, "correct": 0.5, "correct_ci": [0.25, 0.75], "speed": None, "speed_ci": None}
    (tmp_path / "evaluation.json").write_text(json.dumps({"overall": overall}))
    _, rows = table_of(EvaluationRef(uri=str(tmp_path), digest="d", policy_digest="p"))
    assert rows == [
        {"figure": "correct", "value": "0.500 [0.250, 0.750]"},
        {"figure": "speed", "value": "–"},
    ]


def test_what_is_no_number_is_a_dash():
    assert [rounded(value) for value in (None, float("nan"), float("inf"), 1.23456, 7, "x")] == [
        "–",
        "–",
        "–",
        1.235,
        7,
        "x",
    ]


@given(st.text(alphabet="aB9.-_ é·", min_size=1, max_size=20))
def test_keys_are_what_prefect_takes(name: str):
    key = artifact_key("run-1", name)
    assert key.replace("-", "").isalnum()
    assert key == key.lower()
    assert key.isascii()
