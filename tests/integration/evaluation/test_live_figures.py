"""The figures that a run records while it goes on, of artifacts that the real writers made."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.run.run import Run
from flows.run.state import RunState
from flows.settings.configuration import RunConfig
from tasks.evaluation.summary import ReportInputs, iteration_figures
from tasks.pipeline.stage import Workspace
from tasks.tracking.figures import FIGURES_FILE, read_lines


def opened(folder: Path) -> Run:
    return Run(RunConfig(), Workspace(folder, "local-1a2b3c4d", []), RunState())


@pytest.fixture
def run(fake_run: ReportInputs, tmp_path: Path) -> Run:
    """A run that has published two iterations and its evaluations."""
    run = opened(tmp_path)
    play(run, fake_run)
    return run


def play(run: Run, fake_run: ReportInputs) -> None:
    assert fake_run.greedy is not None
    run.add_policy(fake_run.sft)
    run.add_evaluation(fake_run.sampled.before, fake_run.greedy.before, 0)
    for entry in fake_run.iterations[:2]:
        run.add_batch(entry.trajectories, entry.iteration)
        run.add_policy(entry.checkpoint)
    run.add_evaluation(fake_run.sampled.after, None, 2)


def test_each_stage_adds_one_line_as_it_comes(run: Run):
    assert [(line.iteration, line.stage) for line in read_lines(run.run_dir)] == [
        (0, "evaluation"),
        (0, "evaluation_greedy"),
        (0, "rollout"),
        (0, "update"),
        (1, "rollout"),
        (1, "update"),
        (2, "evaluation"),
    ]


def test_a_resumed_run_adds_no_line(run: Run, fake_run: ReportInputs):
    before = (run.run_dir / FIGURES_FILE).read_bytes()
    play(opened(run.workspace.runs_dir), fake_run)
    assert (run.run_dir / FIGURES_FILE).read_bytes() == before


def test_figures_of_a_rollout_are_those_of_its_turns(run: Run, fake_run: ReportInputs):
    """Recomputed row by row from the stored table."""
    entry = fake_run.iterations[0]
    figures = next(line.figures for line in read_lines(run.run_dir) if line.stage == "rollout")
    turns = pl.read_parquet(entry.trajectories.path / "turns.parquet").to_dicts()
    episodes: dict[str, list[dict[str, Any]]] = {}
    for turn in sorted(turns, key=lambda row: row["turn_index"]):
        episodes.setdefault(turn["trajectory_id"], []).append(turn)
    good = [rows for rows in episodes.values() if all(row["reward"] is not None for row in rows)]
    last = [rows[-1] for rows in good]
    assert len(good) < len(episodes), "the invented batch has faults"
    speeds = [row["verdict"]["speedup"] for row in last if row["verdict"]["correct"]]
    product = 1.0
    for speed in speeds:
        product *= speed ** (1 / len(speeds))
    expected = {
        "mean_reward": sum(row["reward"] for row in last) / len(last),
        "mean_return": sum(rows[0]["return"] for rows in good) / len(good),
        "compiled": sum(row["verdict"]["compiled"] for row in last) / len(last),
        "correct": len(speeds) / len(last),
        "geomean_speedup": product,
        "mean_turns": sum(map(len, good)) / len(good),
        "faults": 1 - len(good) / len(episodes),
        "judge_seconds": sum(row["evaluation_s"] for row in turns),
    }
    assert {name: figures[name] for name in expected} == pytest.approx(expected)
    assert figures["statuses"]["correct"] == pytest.approx(expected["correct"])
    assert sum(figures["statuses"].values()) == pytest.approx(1)


def test_figures_are_those_of_the_summary(run: Run, fake_run: ReportInputs):
    summary = iteration_figures(fake_run.iterations[1])
    lines = {line.stage: line.figures for line in read_lines(run.run_dir) if line.iteration == 1}
    both = {**lines["rollout"], **lines["update"]}
    assert both["clip_fraction"] > 0
    for name in ("mean_reward", "mean_return", "correct", "fast_1", "statuses", "loss", "kl", "entropy"):
        assert both[name] == summary[name]


def test_figures_of_an_evaluation_have_their_intervals(run: Run, fake_run: ReportInputs):
    stored = json.loads((fake_run.sampled.after.path / "evaluation.json").read_text())["overall"]
    figures = read_lines(run.run_dir)[-1].figures
    assert figures["correct"] == stored["correct"]
    assert figures["geomean_speedup_ci"] == stored["geomean_speedup_ci"]
