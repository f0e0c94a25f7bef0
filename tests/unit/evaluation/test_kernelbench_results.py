"""KernelBench's files: read back as its own scripts read them, with its own formulas written out anew."""

import json
import math
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.errors import InputError
from kernels_eval.verdict import Status, TimingSource, Verdict, fault
from tasks.agents.config import SOLVER
from tasks.evaluation.kernelbench_results import export_kernelbench, pass_at_k_results
from tasks.trajectories.schema import Termination, Trajectory, Turn

WRONG = Verdict(
    status=Status.INCORRECT, compiled=True, error_category="wrong_values", error_message="at 0", hardware="h100"
)
BROKEN = Verdict(status=Status.COMPILE_ERROR, error_category="syntax_error", error_message="line 1")


def correct(speedup: float, reference_ms: float = 1.0) -> Verdict:
    return Verdict(
        status=Status.CORRECT, compiled=True, correct=True, speedup=speedup, reference_ms=reference_ms, hardware="h100",
        candidate_ms=reference_ms / speedup, timing_source=TimingSource.ROOFLINE,
    )  # fmt: skip


def trajectory(problem: str, sample: int, *verdicts: Verdict, level: int = 1, **changes: Any) -> Trajectory:
    turns = tuple(
        Turn(
            turn_index=index, role=SOLVER, prompt_token_ids=(1,), response_token_ids=(2,), response_logprobs=(0.0,),
            prompt_extends_previous=index > 0, finish_reason="stop", response_text="", kernel_source=None, verdict=verdict,
            reward=None if verdict.is_fault else 0.0, generation_s=0.0, evaluation_s=0.0, created_at=datetime.now(UTC),
        )
        for index, verdict in enumerate(verdicts)
    )  # fmt: skip
    values = {"policy_digest": "p", "split": "heldout", **changes}
    return Trajectory(
        run_id="r", iteration=0, problem_id=problem, problem_digest="d", level=level, group_id=problem,
        trajectory_id=f"{problem}-{sample}", sample_index=sample, turns=turns, termination=Termination.TURN_LIMIT, **values,
    )  # fmt: skip


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_entries_have_kernelbenchs_names_and_the_last_turn_counts(tmp_path: Path):
    rows = [
        trajectory("level1_19_ReLU", 0, WRONG, correct(2.0)),
        trajectory("level1_19_ReLU", 1, correct(2.0), WRONG),
        trajectory("level2_3_Fuse", 0, BROKEN, level=2),
        trajectory("level1_2_Sum", 0, correct(1.5), split="train"),
    ]
    assert export_kernelbench(rows, tmp_path) == 3
    first, second = read(tmp_path / "level1" / "eval_results.json")["19"]
    assert list(first) == ["sample_id", "compiled", "correctness", "metadata", "runtime", "runtime_stats"]
    assert (first["sample_id"], first["compiled"], first["correctness"], first["runtime"]) == (0, True, True, 0.5)
    assert (first["metadata"]["timing_source"], first["metadata"]["turns"]) == ("roofline", 2)
    assert (second["sample_id"], second["correctness"], second["runtime"]) == (1, False, -1)
    assert second["metadata"]["correctness_issue_name"] == "wrong_values"
    (broken,) = read(tmp_path / "level2" / "eval_results.json")["3"]
    assert (broken["compiled"], broken["metadata"]["compilation_error_name"]) == (False, "syntax_error")
    assert read(tmp_path / "timing" / "roofline_h100" / "reference.json") == {"level1": {"19_ReLU.py": {"mean": 1.0}}}
    assert read(tmp_path / "problems.json")["level1_19_ReLU"] == {"level": 1, "number": 19, "file": "19_ReLU.py"}


def test_a_fault_is_no_sample(tmp_path: Path):
    rows = [trajectory("level1_1_A", 0, correct(2.0), fault("judge_fault", "lost")), trajectory("level1_1_A", 1, WRONG)]
    assert export_kernelbench(rows, tmp_path) == 1
    (entry,) = read(tmp_path / "level1" / "eval_results.json")["1"]
    assert (entry["sample_id"], entry["correctness"]) == (0, False)


def test_problems_of_other_sources_are_numbered(tmp_path: Path):
    export_kernelbench(
        [trajectory("generated/relu>sum/8x4", 0, WRONG), trajectory("generated/exp/8x4", 0, WRONG)], tmp_path
    )
    assert list(read(tmp_path / "level1" / "eval_results.json")) == ["1", "2"]
    assert read(tmp_path / "problems.json")["generated/exp/8x4"]["number"] == 1


def test_several_policies_or_none_are_refused(tmp_path: Path):
    for rows in ([], [trajectory("a", 0, WRONG), trajectory("a", 1, WRONG, policy_digest="q")]):
        with pytest.raises(InputError, match="one policy"):
            export_kernelbench(rows, tmp_path)
    with pytest.raises(InputError, match="one number"):
        export_kernelbench([trajectory("level1_1_A", 0, WRONG), trajectory("a", 0, WRONG)], tmp_path)


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0.1, 4)), min_size=1, max_size=8))
def test_fast_p_of_the_files_is_that_of_the_verdicts(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[int, float]]
):
    """fast_p = share of problems whose kernel is correct and more than p times as fast (Ouyang et al. 2025)."""
    folder = tmp_path_factory.mktemp("results")
    verdicts = [(WRONG, BROKEN, correct(speedup, 3.0))[kind] for kind, speedup in drawn]
    export_kernelbench([trajectory(f"level1_{n}_P", 0, verdict) for n, verdict in enumerate(verdicts)], folder)
    entries = {number: found[0] for number, found in read(folder / "level1" / "eval_results.json").items()}
    timing = folder / "timing" / "roofline_h100" / "reference.json"
    baseline = read(timing)["level1"] if timing.exists() else {}
    for p in (0.0, 0.5, 1.0, 2.0):
        speedups = [baseline[f"{n}_P.py"]["mean"] / one["runtime"] for n, one in entries.items() if one["correctness"]]
        expected = sum(verdict.correct and (verdict.speedup or 0) > p + 1e-9 for verdict in verdicts)
        assert sum(speedup > p + 1e-9 for speedup in speedups) == expected
    assert len(entries) == len(verdicts)


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=6), min_size=1, max_size=4), st.integers(1, 5))
def test_pass_at_k_is_the_share_of_draws_with_a_correct_sample(drawn: list[list[bool]], k: int):
    problems = {str(n): [{"correctness": value} for value in values] for n, values in enumerate(drawn)}
    found = pass_at_k_results(problems, [k])
    expected = {
        str(n): sum(any(draw) for draw in combinations(values, k)) / math.comb(len(values), k)
        for n, values in enumerate(drawn)
        if len(values) >= k
    }
    assert {name: one[f"pass@{k}"] for name, one in found["problems"].items() if f"pass@{k}" in one} == pytest.approx(
        expected
    )
    assert found["metadata"][f"pass@{k}_count"] == len(expected)
    if expected:
        assert found["averages"][f"avg_pass@{k}"] == pytest.approx(sum(expected.values()) / len(expected))
