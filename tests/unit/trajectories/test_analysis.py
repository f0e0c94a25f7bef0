"""Figures against a plain computation, and the same figures from a data set and from its logs."""

import json
import math
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from kernels_eval.errors import InputError
from tasks.trajectories.analysis import analyse, draw, load_turns
from tasks.trajectories.schema import Trajectory


def plainly(trajectories: list[Trajectory]) -> dict[str, Any]:
    """The main figures, computed from the trajectories themselves."""
    kept = [each for each in trajectories if all(turn.reward is not None for turn in each.turns)]
    rewards = [[turn.reward or 0.0 for turn in each.turns] for each in kept]
    returns = [sum(0.4**place * reward for place, reward in enumerate(each)) for each in rewards]
    last = [each.turns[-1].verdict for each in kept]
    several = [each for each in rewards if len(each) > 1]
    figures: dict[str, Any] = {
        "trajectories": len(kept),
        "turns": sum(map(len, rewards)),
        "left_out_for_faults": len(trajectories) - len(kept),
        "mean_turns": statistics.fmean(map(len, rewards)),
        "mean_aggregated_return": statistics.fmean(returns),
        "mean_final_reward": statistics.fmean(each[-1] for each in rewards),
        "final_correctness_rate": statistics.fmean(verdict.correct for verdict in last),
        "improvement_rate": statistics.fmean(each[-1] > each[0] for each in several),
    }
    for source in ("gpu", "roofline"):
        speeds = [verdict.speedup or 0 for verdict in last if verdict.correct and verdict.timing_source == source]
        figures[f"{source}_mean"] = statistics.fmean(speeds)
        figures[f"{source}_geometric"] = statistics.geometric_mean(speeds)
    for index in range(4):
        here = [each for each in rewards if len(each) > index]
        figures[f"reward_{index}"] = statistics.fmean(each[index] for each in here)
        if index:
            figures[f"change_{index}"] = statistics.fmean(each[index] - each[index - 1] for each in here)
    return figures


@pytest.mark.parametrize("seed", range(5))
def test_figures(stored: Any, tmp_path: Path, seed: int) -> None:
    trajectories = stored.trajectories(seed, problems=8)
    stored.batch(trajectories, tmp_path / "batch")
    figures = analyse(load_turns(tmp_path / "batch")[0])
    expected = plainly(trajectories)
    flat = {name: value for name, value in figures.items() if name in expected}
    for source, speed in figures["speedups"].items():
        flat |= {f"{source}_mean": speed["mean"], f"{source}_geometric": speed["geometric_mean"]}
    for row in figures["per_turn"]:
        flat[f"reward_{row['turn'] - 1}"] = row["mean_reward"]
        if row["turn"] > 1:
            flat[f"change_{row['turn'] - 1}"] = row["progression"]
    assert flat == pytest.approx(expected)
    assert figures["per_turn"][0]["progression"] is None
    assert [row["return"] for row in figures["top"]] == sorted((row["return"] for row in figures["top"]), reverse=True)
    assert json.loads(json.dumps(figures)) == figures


def test_logs_give_the_same_figures(stored: Any, tmp_path: Path) -> None:
    trajectories = stored.trajectories(1)
    stored.batch(trajectories, tmp_path / "batch")
    stored.logs(trajectories, tmp_path / "logs")
    from_table, from_logs = (analyse(load_turns(tmp_path / name)[0]) for name in ("batch", "logs"))
    assert from_logs.pop("problems") == from_table.pop("problems")
    assert from_logs == from_table


def test_policies_and_runs_with_the_same_names_are_told_apart(stored: Any, tmp_path: Path) -> None:
    """A run answers the same held-out problems with several policies, and another run with the same names."""
    one = stored.trajectories(1)
    kinds = [
        one,
        [replace(each, policy_digest="other") for each in one],
        [replace(each, run_id="other") for each in one],
    ]
    for number, kind in enumerate(kinds):
        stored.batch(kind, tmp_path / "batches" / f"run_id={number}" / "iteration=0")
        stored.logs(kind, tmp_path / "logs")
    alone = analyse(load_turns(tmp_path / "batches" / "run_id=0" / "iteration=0")[0])
    for place in ("batches", "logs"):
        figures = analyse(load_turns(tmp_path / place)[0])
        assert figures["trajectories"] == 3 * alone["trajectories"]
        for name in ("mean_turns", "mean_aggregated_return", "improvement_rate", "final_correctness_rate"):
            assert figures[name] == pytest.approx(alone[name])


def test_a_rollout_that_was_played_again_counts_once(stored: Any, tmp_path: Path) -> None:
    """The first attempt was killed: its files stay."""
    trajectories = stored.trajectories(1)
    stored.logs(trajectories[:7], tmp_path / "logs")
    stored.logs(trajectories, tmp_path / "logs")
    stored.batch(trajectories, tmp_path / "batch")
    from_table, from_logs = (analyse(load_turns(tmp_path / name)[0]) for name in ("batch", "logs"))
    assert from_logs == from_table


def test_logs_of_other_programs(tmp_path: Path) -> None:
    """As little as the documented shape: no extra information, no trajectory ids."""
    result = {"compiled": True, "correctness": True, "runtime": 1.5, "speedup": 2.0, "error_message": ""}
    for number in range(2):
        record = {
            "timestamp": "20250807_084801_411804", "instance_id": "kernelbench_1", "final_reward": 1.3, "num_turns": 1,
            "turn_rewards": [1.3], "aggregated_return": 1.3, "messages": [],
            "history": [{"turn_idx": 0, "kernel_code": "", "eval_result": result, "reward": 1.3}],
        }  # fmt: skip
        (tmp_path / f"trajectory_kernelbench_1_2025_{number}.json").write_text(json.dumps(record))
    (tmp_path / "trajectory_kernelbench_1_2025_9.json").write_text('{"timestamp": "2025')
    turns, faults = load_turns(tmp_path)
    figures = analyse(turns)
    assert (figures["trajectories"], figures["mean_turns"]) == (2, 1.0)
    assert figures["speedups"] == {"unmarked": {"kernels": 2, "mean": 2.0, "geometric_mean": pytest.approx(2.0)}}
    assert len(faults) == 1
    assert faults[0].startswith("trajectory_kernelbench_1_2025_9.json: ")


def test_a_run_is_analysed_by_iteration(run_folder: Callable[[int], Path]) -> None:
    turns, _ = load_turns(run_folder(12))
    figures = analyse(turns)
    assert [row["iteration"] for row in figures["per_iteration"]] == list(range(12))
    assert figures["trajectories"] + figures["left_out_for_faults"] == 12 * 24


def test_faults_alone(stored: Any, tmp_path: Path) -> None:
    trajectories = [each for each in stored.trajectories(2, problems=30) if len(each.turns) == 1]
    stored.batch([each for each in trajectories if each.turns[0].reward is None], tmp_path / "batch")
    turns, _ = load_turns(tmp_path / "batch")
    figures = analyse(turns)
    assert figures["trajectories"] == 0 < figures["left_out_for_faults"]
    assert figures["mean_turns"] is None
    assert figures["per_turn"] == figures["top"] == []
    with pytest.raises(InputError, match="nothing to draw"):
        draw(turns, figures, tmp_path / "plot.svg")


@pytest.mark.parametrize("iterations", [1, 3])
@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_plots(run_folder: Callable[[int], Path], tmp_path: Path, iterations: int, suffix: str) -> None:
    turns, _ = load_turns(run_folder(iterations))
    path = tmp_path / "new" / f"plot.{suffix}"
    draw(turns, analyse(turns), path)
    assert path.read_bytes()[:5] in (b"<?xml", b"\x89PNG\r")
    with pytest.raises(InputError, match=r"\.svg"):
        draw(turns, analyse(turns), tmp_path / "plot.doc")


def test_what_is_no_data_set_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(InputError, match="expected a "):
            load_turns(path)


def test_speedups_that_are_no_numbers_do_not_count(stored: Any, tmp_path: Path) -> None:
    stored.batch(stored.trajectories(1), tmp_path / "batch")
    turns, _ = load_turns(tmp_path / "batch")
    broken = turns.with_columns(pl.when(pl.col("speedup") > 2).then(math.inf).otherwise("speedup").alias("speedup"))
    figures = analyse(broken)
    assert all(math.isfinite(speed["mean"]) for speed in figures["speedups"].values())
