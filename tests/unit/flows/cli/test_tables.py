"""The tables at the end of a run."""

import json
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from flows.cli.tables import comparison_tables, data_sets_table, print_analysis, summary_tables
from tasks.evaluation.comparison import SHOWN_FIGURES

POLICY = {"correct": 0.5, "correct_ci": [0.4, 0.6], "mean_return": 1.0, "mean_return_ci": [0.9, 1.1]}


def shown(folder: Path, heldout: dict[str, Any], width: int = 160, **more: Any) -> str:
    summary = {"heldout": {"n": 3, "before": POLICY, "after": POLICY, **heldout}, "timing_source": "roofline", **more}
    (folder / "summary.json").write_text(json.dumps(summary))
    console = Console(width=width, record=True)
    for table in summary_tables(folder):
        console.print(table)
    return console.export_text()


def test_without_a_control_there_is_no_column_of_it(tmp_path: Path):
    text = shown(tmp_path, {"delta_correct": 0.1, "delta_correct_ci": [0.05, 0.15]})
    assert "+0.10 [+0.05, +0.15]" in text
    assert "control" not in text


@pytest.mark.parametrize("width", [160, 80])
def test_a_control_has_its_figures_and_what_rl_has_over_it(tmp_path: Path, width: int):
    control = {
        "control": {"correct": 0.25, "correct_ci": [0.2, 0.3]},
        "over_control": {"n": 3, "delta_correct": 0.22, "delta_correct_ci": [0.11, 0.33]},
    }
    text = shown(tmp_path, control, width)
    assert "control" in text
    for figure in ("0.25", "+0.22", "+0.33"):
        assert figure in text


def test_greedy_answers_have_a_table_of_their_own(tmp_path: Path):
    greedy = {"n": 3, "before": POLICY, "after": POLICY, "delta_correct": 0.03, "delta_correct_ci": [-0.01, 0.07]}
    text = shown(tmp_path, {"delta_correct": 0.1, "delta_correct_ci": [0.05, 0.15]}, heldout_greedy=greedy)
    assert text.index("sampled answers") < text.index("+0.10 [+0.05, +0.15]")
    assert text.index("greedy answers") < text.index("+0.03 [-0.01, +0.07]")
    assert "greedy" not in shown(tmp_path, {}, heldout_greedy=None)


def test_the_list_of_data_sets_fits_80_columns_without_losing_a_character():
    entry = SimpleNamespace(
        run_id="qwen3-8b-multi-turn-1a2b3c4d", iterations=(0, 199), trajectories=12345, turns=123456, correct=0.5,
        mean_return=-1.25, quarantined=1234, bytes=123456789, digest="0123456789abcdef",
    )  # fmt: skip
    console = Console(width=80, record=True)
    console.print(data_sets_table([entry]))
    lines = console.export_text().splitlines()
    assert max(len(line) for line in lines) <= 80
    rows = lines[lines.index(next(line for line in lines if "─" in line)) + 1 :]
    words = [line.split() for line in rows if line.strip()]
    assert "".join(row[0] for row in words) == entry.run_id
    assert "".join(row[-1] for row in words if len(row) > 1) == entry.digest
    for cell in ("0–199", "12,345", "123,456", "0.500", "-1.250", "1234", "123.5 MB"):
        assert cell in rows[0]


def test_a_comparison_of_four_policies_fits_80_columns_and_keeps_every_figure():
    figures = dict.fromkeys(SHOWN_FIGURES, 0.25) | {f"{name}_ci": [0.125, 0.375] for name in SHOWN_FIGURES}
    names = ["sft", "rl", "a-model-with-a-long-name-behind-a-server", "control"]
    policies = [figures | {"name": name, "tokens": {"prompts": 123456, "answers": 45678}} for name in names]
    change = {f"delta_{name}": -0.5 for name in SHOWN_FIGURES}
    change |= {f"delta_{name}_ci": [-0.625, -0.375] for name in SHOWN_FIGURES}
    pairs = [change | {"before": before, "after": after} for before, after in combinations(names, 2)]
    console = Console(width=80, record=True)
    for table in comparison_tables({"n": 96, "policies": policies, "pairs": pairs}):
        console.print(table)
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert text.count("0.25 [0.12, 0.38]") == len(SHOWN_FIGURES) * len(policies)
    assert text.count("-0.50 [-0.62, -0.38]") == len(SHOWN_FIGURES) * len(pairs)
    assert text.count("123,456 → 45,678") == len(policies)
    assert "a-model-with" in text


def test_an_analysis_fits_80_columns_and_keeps_every_figure_and_id():
    speeds = {source: {"kernels": 12345, "mean": 12.25, "geometric_mean": 11.2} for source in ("gpu", "roofline")}
    turn = {
        "turns": 123456, "mean_reward": 12.1234, "success_rate": 0.456, "compiled_rate": 1.0, "progression": -0.1234,
        "repair_gain": -0.123, "repairs": 12345, "speedups": speeds,
    }  # fmt: skip
    iteration = {
        "trajectories": 12345,
        "mean_turns": 2.5,
        "mean_aggregated_return": 1.25,
        "final_correctness_rate": 0.4,
    }
    ids = ["heldout-0123-level1_100_HingeLoss-003", f"train-0001-{'long_name_' * 7}-015"]
    best = {"return": 12.3456, "rewards": [1.0, 0.5, 3.25], "speedup": 12.31, "timing_source": "roofline"}
    figures = {
        "trajectories": 123456, "problems": 96, "splits": {"train": 12000, "heldout": 345}, "mean_turns": 2.5,
        "mean_aggregated_return": 1.2345, "mean_final_reward": 1.1, "final_correctness_rate": 0.5,
        "final_compiled_rate": 0.9, "improvement_rate": 0.2, "speedups": speeds,
        "terminations": {"target_reached": 3}, "left_out_for_faults": 2,
        "per_turn": [turn | {"turn": number} for number in (1, 2)],
        "per_iteration": [iteration | {"iteration": number} for number in (0, 199)],
        "top": [best | {"trajectory_id": name} for name in ids],
    }  # fmt: skip
    console = Console(width=80, record=True)
    print_analysis(figures, console)
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    assert [line for line in lines if len(line) > 80] == [f"  {ids[1]}"]  # broken by the terminal, not by us
    words = [line.split() for line in lines]
    assert [ids[0]] in words
    assert [
        "2",
        "123,456",
        "12.1234",
        "45.6",
        "%",
        "100.0",
        "%",
        "-0.1234",
        "-12.3",
        "12,345",
        "12.25x",
        "12.25x",
    ] in words
    assert [
        "return",
        "12.3456,",
        "speedup",
        "12.31x",
        "(roofline),",
        "turn",
        "rewards",
        "1.00,",
        "0.50,",
        "3.25",
    ] in words
    assert not [line for line in lines if "…" in line]
