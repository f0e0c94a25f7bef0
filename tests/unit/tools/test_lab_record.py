"""A record made from summaries: results_table reads it, and its figures are the runs'."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
import lab_record
import results_table


def changes(value: float) -> dict[str, Any]:
    names = lab_record.FIGURES.values()
    return {f"delta_{name}": value for name in names} | {
        f"delta_{name}_ci": [value - 0.1, value + 0.1] for name in names
    }


def heldout(before: float, after: float) -> dict[str, Any]:
    policies = {"before": dict.fromkeys(lab_record.FIGURES.values(), before)}
    policies["after"] = dict.fromkeys(lab_record.FIGURES.values(), after)
    return {"n": 96, **policies, **changes(after - before), "over_rejection": changes(0.05)}


def test_a_record_has_the_figures_and_the_baselines_of_each_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    greedy = heldout(1.0, 1.25)
    summary = {
        "timing_source": "roofline",
        "heldout": heldout(0.5, 0.9),
        "heldout_greedy": {**greedy, "harder": heldout(0.5, 0.45)},
        "admission": [{"name": "room", "found": 0.41, "expected": "0.3 to 0.7", "is_met": True}],
        "iterations": [{"mean_reward": 0.5, "correct": 0.4}, {"mean_reward": 0.75, "correct": 0.6}],
        "digests": {"problem set": "a1", "SFT": "b2", "update 0": "c3", "update 1": "d4"},
    }
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    out = tmp_path / "2026-11-27-1.json"
    arguments = ["lab_record", "A title", f"local, seed 0={tmp_path / 'run'}", "--command", "make train"]
    monkeypatch.setattr(sys, "argv", [*arguments, "--out", str(out)])
    lab_record.main()

    figures = results_table.read(tmp_path)
    assert {figure.metric for figure in figures} >= set(results_table.METRICS)
    final = next(figure for figure in figures if figure.metric == "final reward, greedy")
    assert (final.before, final.after, final.change) == (1.0, 1.25, (0.25, 0.15, 0.35))
    assert final.above_rejection == (0.05, -0.05, 0.15)
    assert final.above_more_sft is None
    assert "| +0.05 [−0.05, +0.15] |" in results_table.results_table(figures)
    _, of_changes, curve, digests = json.loads(out.read_text(encoding="utf-8"))["body"]
    assert [
        "local, seed 0",
        "harder",
        "greedy",
        "RL − SFT",
        *["−0.05 [−0.15, +0.05]"] * len(lab_record.FIGURES),
    ] in of_changes["rows"]
    assert curve["rows"] == [["local, seed 0", "0.50 0.75", "0.40 0.60"]]
    assert digests["rows"] == [["local, seed 0", "a1", "", "b2", "d4"]]


def test_two_runs_come_to_one_figure_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["lab_record", "A title", "--command", "make train", "--pool", "local, two seeds"]
    for seed, after in enumerate((0.7, 0.9)):
        summary = {
            "timing_source": "roofline",
            "primary": {"outcome": "greedy mean_reward"},
            "heldout": heldout(0.5, 0.9),
            "heldout_greedy": heldout(0.5, after),
            "admission": [],
            "iterations": [],
            "digests": {},
        }
        (tmp_path / str(seed)).mkdir()
        (tmp_path / str(seed) / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
        arguments.append(f"local, seed {seed}={tmp_path / str(seed)}")
    out = tmp_path / "2026-11-27-1.json"
    monkeypatch.setattr(sys, "argv", [*arguments, "--out", str(out)])
    lab_record.main()

    figures = results_table.read(tmp_path)
    final = next(
        each for each in figures if (each.setting, each.metric) == ("local, two seeds", "final reward, greedy")
    )
    assert (final.before, final.after) == (0.5, pytest.approx(0.8))
    assert final.change[0] == pytest.approx(0.3)
    assert final.change[1] < 0.1 < 0.5 < final.change[2]  # two runs say little of the runs' spread
    assert final.above_rejection is not None
    assert final.above_rejection[0] == pytest.approx(0.05)
    pooled = json.loads(out.read_text(encoding="utf-8"))["body"][0]
    assert pooled["rows"][0][:3] == ["after RL − before RL", "standard", "final reward, greedy"]
