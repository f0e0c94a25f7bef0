"""Evaluation from published tables, against the same figures computed by hand in plain Python."""

import json
import math
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from kernels_eval.errors import InputError
from tasks.evaluation.config import EvaluationConfig
from tasks.evaluation.evaluate import evaluate_policy, paired, read_evaluation, read_per_problem
from tasks.evaluation.summary import ReportInputs
from tasks.pipeline.references import ArtifactRef, TrajectoryBatchRef
from tasks.pipeline.store import is_available
from tasks.trajectories.reader import read_turns_file


def _episodes(reference: ArtifactRef) -> dict[str, list[dict[str, Any]]]:
    """Turns by trajectory on standard problems, in order, without trajectories in which the machine failed."""
    harder = set(read_per_problem(reference).filter(pl.col("tier") != "standard")["problem_id"])
    episodes: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in read_turns_file(reference.path / "turns.parquet").sort("turn_index").to_dicts():
        if row["problem_id"] not in harder:
            episodes[row["trajectory_id"]].append(row)
    return {
        name: turns
        for name, turns in episodes.items()
        if all(turn["verdict"]["status"] != "infrastructure_error" for turn in turns)
    }


def _mean_over_problems(values: list[tuple[str, float]]) -> float:
    by_problem: dict[str, list[float]] = defaultdict(list)
    for problem, value in values:
        by_problem[problem].append(value)
    return sum(sum(rows) / len(rows) for rows in by_problem.values()) / len(by_problem)


def test_figures_equal_those_computed_by_hand(fake_run: ReportInputs) -> None:
    overall = read_evaluation(fake_run.sampled.before)["overall"]
    episodes = _episodes(fake_run.sampled.before)
    last = {name: turns[-1] for name, turns in episodes.items()}

    def share(condition: Any) -> float:
        return _mean_over_problems([(turn["problem_id"], float(condition(turn["verdict"]))) for turn in last.values()])

    assert overall["correct"] == pytest.approx(share(lambda verdict: verdict["correct"]))
    assert overall["fast_0"] == overall["correct"]
    assert overall["compiled"] == pytest.approx(share(lambda verdict: verdict["compiled"]))
    for threshold, name in ((0.5, "fast_0.5"), (1, "fast_1"), (1.5, "fast_1.5"), (2, "fast_2")):
        assert overall[name] == pytest.approx(share(lambda v, p=threshold: v["correct"] and v["speedup"] > p))
    assert overall["mean_return"] == pytest.approx(
        _mean_over_problems([(turns[0]["problem_id"], turns[0]["return"]) for turns in episodes.values()])
    )
    assert overall["mean_reward"] == pytest.approx(
        _mean_over_problems([(turn["problem_id"], turn["reward"]) for turn in last.values()])
    )
    logs = [math.log(turn["verdict"]["speedup"]) for turn in last.values() if turn["verdict"]["correct"]]
    assert overall["geomean_speedup"] == pytest.approx(math.exp(sum(logs) / len(logs)))


def test_every_figure_lies_in_its_interval(fake_run: ReportInputs) -> None:
    overall = read_evaluation(fake_run.sampled.after)["overall"]
    intervals = [name for name in overall if name.endswith("_ci")]
    assert len(intervals) >= 12
    for name in intervals:
        low, high = overall[name]
        assert low <= overall[name.removesuffix("_ci")] <= high


def test_faults_are_left_out_and_counted(
    fake_run: ReportInputs, tmp_path: Path, problem_rows: Any, make_batch: Any
) -> None:
    heldout = [row for row in problem_rows if row.split.value == "heldout"][:6]
    batch = make_batch(heldout, 4, tmp_path / "batch", 1, skill=0.5, speed=1.0, fault=0.3)
    reference = evaluate_policy(batch, fake_run.problems, EvaluationConfig(), tmp_path / "evaluation")
    evaluation = read_evaluation(reference)
    counted = _episodes(reference)
    assert 0 < len(counted) < 24
    assert evaluation["trajectories"] == len(counted)
    assert evaluation["infrastructure_errors"] == 24 - len(counted)
    assert evaluation["problems"] + evaluation["problems_left_out"] == fake_run.problems.heldout == 54
    assert "infrastructure_error" not in evaluation["statuses"]
    table = read_per_problem(reference)
    assert (table["trajectories"] + table["infrastructure_errors"]).to_list() == [4] * 6
    few = table.filter(pl.col("trajectories") < 4)
    assert few.height > 0
    assert few["pass_4"].is_null().all()


def test_nothing_but_faults_gives_no_figures(
    fake_run: ReportInputs, tmp_path: Path, problem_rows: Any, make_batch: Any
) -> None:
    heldout = [row for row in problem_rows if row.split.value == "heldout"][:3]
    batch = make_batch(heldout, 2, tmp_path / "batch", 1, skill=0.5, speed=1.0, fault=1.0)
    evaluation = read_evaluation(evaluate_policy(batch, fake_run.problems, EvaluationConfig(), tmp_path / "evaluation"))
    assert evaluation["infrastructure_errors"] == 6
    assert evaluation["overall"]["correct"] is None
    assert evaluation["overall"]["correct_ci"] is None
    assert evaluation["timing_source"] is None


def test_turns_are_told_apart(fake_run: ReportInputs) -> None:
    turns = read_evaluation(fake_run.sampled.before)["turns"]
    episodes = _episodes(fake_run.sampled.before)
    assert [turn["turn_index"] for turn in turns] == [0, 1, 2]
    assert turns[0]["n"] == len(episodes)
    assert turns[2]["n"] == sum(len(episode) == 3 for episode in episodes.values())
    second = [
        (episode[0]["problem_id"], float(episode[min(1, len(episode) - 1)]["verdict"]["correct"]))
        for episode in episodes.values()
    ]
    assert turns[1]["after"]["correct"] == pytest.approx(_mean_over_problems(second))
    assert turns[2]["after"]["correct"] == pytest.approx(read_evaluation(fake_run.sampled.before)["overall"]["correct"])


def test_levels_partition_the_problems(fake_run: ReportInputs) -> None:
    evaluation = read_evaluation(fake_run.sampled.before)
    levels = evaluation["levels"]
    assert sum(figures["n"] for figures in levels.values()) == evaluation["overall"]["n"] == 48
    weighted = sum(figures["n"] * figures["correct"] for figures in levels.values()) / 48
    assert weighted == pytest.approx(evaluation["overall"]["correct"])


def test_harder_problems_are_measured_apart(fake_run: ReportInputs) -> None:
    evaluation = read_evaluation(fake_run.sampled.after)
    tiers = evaluation["tiers"]
    assert {name: figures["n"] for name, figures in tiers.items()} == {"longer": 2, "new_pairs": 2, "new_shapes": 2}
    assert evaluation["harder"]["n"] == 6
    assert evaluation["harder"]["correct"] == pytest.approx(sum(tier["correct"] for tier in tiers.values()) / 3)
    assert evaluation["problems"] == 54
    assert evaluation["trajectories"] == sum(evaluation[part]["trajectories"] for part in ("overall", "harder"))
    deltas = paired(fake_run.sampled.before, fake_run.sampled.after, fake_run.evaluation_config, "harder")
    before = read_evaluation(fake_run.sampled.before)["harder"]["correct"]
    assert (deltas["n"], deltas["delta_correct"]) == (6, pytest.approx(evaluation["harder"]["correct"] - before))


def test_an_evaluation_of_an_earlier_version_is_of_standard_problems(fake_run: ReportInputs, tmp_path: Path) -> None:
    folder = shutil.copytree(fake_run.sampled.before.path, tmp_path / "old")
    read_per_problem(fake_run.sampled.before).drop("tier", "added_correct").write_parquet(
        folder / "per_problem.parquet"
    )
    old = fake_run.sampled.before.model_copy(update={"uri": str(folder)})
    deltas = paired(old, fake_run.sampled.after, fake_run.evaluation_config)
    assert "delta_correct" in deltas
    assert "delta_added_correct" not in deltas


def test_what_later_turns_added_and_how_likely_answers_were(fake_run: ReportInputs) -> None:
    """By hand: differences of shares by turn, and sums of the stored log-probabilities."""
    evaluation, episodes = read_evaluation(fake_run.sampled.before), _episodes(fake_run.sampled.before)
    gained = [
        (turns[0]["problem_id"], float(turns[-1]["verdict"]["correct"]) - float(turns[0]["verdict"]["correct"]))
        for turns in episodes.values()
    ]
    assert evaluation["overall"]["added_correct"] == pytest.approx(_mean_over_problems(gained))
    by_turn = [turn["added"].get("correct", 0.0) for turn in evaluation["turns"]]
    assert sum(by_turn) == pytest.approx(evaluation["overall"]["added_correct"])
    second = [turns[1] for turns in episodes.values() if len(turns) > 1]
    for name, wanted in (
        ("answer_nats", (True, False)),
        ("answer_nats_correct", (True,)),
        ("answer_nats_wrong", (False,)),
    ):
        nats = [-sum(turn["response_logprobs"]) for turn in second if turn["verdict"]["correct"] in wanted]
        assert evaluation["turns"][1]["taken"][name] == pytest.approx(sum(nats) / len(nats), rel=1e-5)


def test_paired_deltas_are_differences_of_the_figures(fake_run: ReportInputs) -> None:
    before, after = (
        read_evaluation(reference)["overall"] for reference in (fake_run.sampled.before, fake_run.sampled.after)
    )
    deltas = paired(fake_run.sampled.before, fake_run.sampled.after, fake_run.evaluation_config)
    assert deltas["n"] == 48
    for name in ("correct", "mean_return", "fast_2", "geomean_speedup"):
        assert deltas[f"delta_{name}"] == pytest.approx(after[name] - before[name])
        low, high = deltas[f"delta_{name}_ci"]
        assert low <= deltas[f"delta_{name}"] <= high
    backwards = paired(fake_run.sampled.after, fake_run.sampled.before, fake_run.evaluation_config)
    assert backwards["delta_correct"] == pytest.approx(-deltas["delta_correct"])


def test_a_policy_does_not_differ_from_itself(fake_run: ReportInputs) -> None:
    deltas = paired(fake_run.sampled.before, fake_run.sampled.before, fake_run.evaluation_config)
    assert deltas["delta_correct"] == 0
    assert deltas["delta_correct_ci"] == [0, 0]


def test_only_shared_problems_are_compared(
    fake_run: ReportInputs, tmp_path: Path, problem_rows: Any, make_batch: Any
) -> None:
    heldout = [row for row in problem_rows if row.split.value == "heldout"]
    parts = []
    for name, rows in (("first", heldout[:10]), ("second", heldout[5:20]), ("third", heldout[30:])):
        batch = make_batch(rows, 2, tmp_path / name, 1, skill=0.5, speed=1.0)
        parts.append(evaluate_policy(batch, fake_run.problems, EvaluationConfig(), tmp_path / f"{name}-evaluation"))
    assert paired(parts[0], parts[1], EvaluationConfig())["n"] == 5
    with pytest.raises(InputError, match="same problems"):
        paired(parts[0], parts[2], EvaluationConfig())


def test_the_evaluation_is_published_and_repeats_to_the_byte(fake_run: ReportInputs, tmp_path: Path) -> None:
    assert is_available(fake_run.sampled.before)
    content = json.loads((fake_run.sampled.before.path / "evaluation.json").read_text())
    batch_folder = Path(str(fake_run.sampled.before.path).replace("evaluation-", "heldout-"))
    manifest = json.loads((batch_folder / "manifest.json").read_text())
    batch = TrajectoryBatchRef(
        uri=str(batch_folder),
        digest=manifest["digest"],
        run_id=content["run_id"],
        iteration=content["iteration"],
        trajectories=0,
        turns=0,
    )
    again = evaluate_policy(batch, fake_run.problems, fake_run.evaluation_config, tmp_path / "again")
    assert again.digest == fake_run.sampled.before.digest


def test_unknown_problems_are_refused(
    fake_run: ReportInputs, tmp_path: Path, problem_rows: Any, make_batch: Any
) -> None:
    stranger = problem_rows[0].model_copy(
        update={"problem": problem_rows[0].problem.model_copy(update={"problem_id": "elsewhere"})}
    )
    batch = make_batch([stranger], 2, tmp_path / "batch", 1, skill=0.5, speed=1.0)
    with pytest.raises(InputError, match="none of its problem_ids"):
        evaluate_policy(batch, fake_run.problems, EvaluationConfig(), tmp_path / "evaluation")
    assert not (tmp_path / "evaluation").exists()
