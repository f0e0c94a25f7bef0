"""From turns to one row a problem, compared with plain Python over the same turns."""

import math
from itertools import combinations
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.evaluation.config import EvaluationConfig
from tasks.evaluation.per_problem import (
    SPEEDUP,
    fast_name,
    last_turns,
    per_problem_table,
    ratios_of,
    status_shares,
    thresholds_of,
    with_outcomes,
    without_faults,
)
from tasks.evaluation.statistics import figure_of

CONFIG = EvaluationConfig(pass_at=(1, 2), fast_thresholds=(1.5,))
STATUSES = ("correct", "incorrect", "compile_error", "infrastructure_error")


def turn(trajectory: str, index: int, status: str, speedup: float | None = None, reward: float = 0.0) -> dict[str, Any]:
    correct = status == "correct"
    verdict = {
        "status": status,
        "compiled": status in ("correct", "incorrect"),
        "correct": correct,
        "speedup": speedup if correct else None,
    }
    return {
        "trajectory_id": trajectory,
        "problem_id": trajectory[0],
        "turn_index": index,
        "verdict": verdict,
        "reward": reward,
        "return": 2 * reward,
        "response_text": f"{status} {round(reward)}",
        "response_logprobs": [-0.25, -abs(reward)],
    }


SCHEMA = {
    "trajectory_id": pl.String,
    "problem_id": pl.String,
    "turn_index": pl.Int32,
    "verdict": pl.Struct({"status": pl.String, "compiled": pl.Boolean, "correct": pl.Boolean, "speedup": pl.Float64}),
    "reward": pl.Float64,
    "return": pl.Float64,
    "response_text": pl.String,
    "response_logprobs": pl.List(pl.Float32),
}


def frame(turns: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(turns, schema=SCHEMA)


def table_of(turns: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The per-problem table of these turns by problem."""
    trajectories = pl.DataFrame({"problem_id": [name[0] for name in {row["trajectory_id"] for row in turns}]})
    names = sorted({row["problem_id"] for row in turns})
    problems = pl.DataFrame(
        {"problem_id": names, "problem_digest": names, "level": 1, "family": "", "tier": "standard"}
    )
    table = per_problem_table(trajectories, frame(turns), problems, CONFIG)
    return {row["problem_id"]: row for row in table.iter_rows(named=True)}


episodes = st.dictionaries(
    st.sampled_from([problem + sample for problem in "ab" for sample in "123"]),
    st.lists(st.tuples(st.sampled_from(STATUSES), st.floats(0.1, 8.0), st.floats(-1, 2)), min_size=1, max_size=3),
    min_size=1,
)


@given(episodes)
def test_shares_are_those_of_a_plain_count_over_last_turns(drawn: dict[str, list[tuple[str, float, float]]]):
    turns = [turn(name, i, *values) for name, steps in drawn.items() for i, values in enumerate(steps)]
    counted = {n: s for n, s in drawn.items() if all(status != "infrastructure_error" for status, *_ in s)}
    for problem, row in table_of(turns).items():
        last = [steps[-1] for name, steps in counted.items() if name[0] == problem]
        assert row["trajectories"] == len(last)
        assert row["infrastructure_errors"] == sum(name[0] == problem for name in drawn) - len(last)
        if not last:
            assert row["correct"] is row["mean_return"] is row["pass_1"] is None
            continue
        correct = [status == "correct" for status, *_ in last]
        assert row["correct"] == pytest.approx(sum(correct) / len(last))
        fast = [good and speedup > 1.5 for good, (_, speedup, _) in zip(correct, last, strict=True)]
        assert row["fast_1.5"] == pytest.approx(sum(fast) / len(last))
        firsts = [steps[0][2] * 2 for name, steps in counted.items() if name[0] == problem]
        assert row["mean_return"] == pytest.approx(sum(firsts) / len(firsts))
        first = [steps[0] for name, steps in counted.items() if name[0] == problem]
        was_correct = [status == "correct" for status, *_ in first]
        assert row["added_correct"] == pytest.approx((sum(correct) - sum(was_correct)) / len(last))
        rewards = [after - before for (*_, after), (*_, before) in zip(last, first, strict=True)]
        assert row["added_reward"] == pytest.approx(sum(rewards) / len(last), abs=1e-9)
        every = [reward for name, steps in counted.items() if name[0] == problem for *_, reward in steps]
        assert row["found_reward"] == max(every)
        assert row["distinct_answers"] == len({(status, round(reward)) for status, _, reward in first})
        nats = [0.25 + abs(reward) for *_, reward in first]
        assert row["answer_nats"] == pytest.approx(sum(nats) / len(nats), rel=1e-5)
        pairs = [a or b for a, b in combinations(correct, 2)]
        assert row["pass_2"] == (pytest.approx(sum(pairs) / len(pairs)) if pairs else None)


@given(episodes)
def test_a_fault_in_any_turn_takes_the_whole_trajectory_out(drawn: dict[str, list[tuple[str, float, float]]]):
    turns = frame([turn(name, i, *values) for name, steps in drawn.items() for i, values in enumerate(steps)])
    left = set(without_faults(turns).get_column("trajectory_id"))
    assert left == {n for n, s in drawn.items() if all(status != "infrastructure_error" for status, *_ in s)}


def test_a_turn_without_a_status_counts_as_a_fault():
    turns = frame([turn("a1", 0, "correct"), {**turn("a2", 0, "correct"), "verdict": None}])
    assert without_faults(turns).get_column("trajectory_id").to_list() == ["a1"]


def test_last_turns_and_their_statuses_in_any_order_of_rows():
    turns = frame([turn("a1", 1, "correct"), turn("a2", 0, "incorrect"), turn("a1", 0, "incorrect")])
    assert last_turns(turns).get_column("turn_index").to_list() == [1, 0]
    assert last_turns(turns, until=0).get_column("turn_index").to_list() == [0, 0]
    assert status_shares(with_outcomes(turns, [])) == {"correct": 0.5, "incorrect": 0.5}
    assert status_shares(with_outcomes(turns.clear(), [])) == {}


def test_a_correct_kernel_without_a_time_is_fast_for_no_threshold_but_zero():
    (row,) = with_outcomes(frame([turn("a1", 0, "correct")]), [0.0, 0.5]).to_dicts()
    assert (row["fast_0"], row["fast_0.5"], row["speedup"]) == (True, False, None)


def test_thresholds_are_rising_and_hold_what_every_summary_names():
    assert thresholds_of(CONFIG) == [0.0, 1.0, 1.5, 2.0]
    assert [fast_name(threshold) for threshold in (1.0, 0.5)] == ["fast_1", "fast_0.5"]


def test_problems_have_equal_weight_but_the_geometric_mean_pools_speedups():
    turns = [turn("a1", 0, "correct", 4.0), turn("b1", 0, "correct", 1.0), turn("b2", 0, "incorrect")]
    turns.append(turn("b3", 0, "correct", 2.0))
    table = table_of(turns)
    ratios = ratios_of(pl.DataFrame(list(table.values()), infer_schema_length=None))
    assert figure_of(ratios["correct"]) == pytest.approx((1 + 2 / 3) / 2)
    assert figure_of(ratios[SPEEDUP]) == pytest.approx(math.exp((math.log(4) + math.log(1) + math.log(2)) / 3))
