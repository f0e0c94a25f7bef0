"""From turns to samples: what cannot be trained on is refused by name, what has no gradient is left out and counted."""

from typing import Any

import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kernels_eval.errors import InputError
from tasks.update.advantages import soft_overlong_penalty
from tasks.update.config import UpdateConfig
from tasks.update.credit_assignment import SampleSet, credit
from tasks.update.dataset import NothingToLearnError, make_samples
from tasks.update.program import deal_groups

CONFIG = UpdateConfig(credit="return")


def turn(group: str, sample: int, return_: float | None, **changes: Any) -> dict[str, Any]:
    row = {
        "trajectory_id": f"{group}-{sample}",
        "group_id": group,
        "turn_index": 0,
        "role": "solver",
        "prompt_token_ids": [1, 2],
        "response_token_ids": [3, 4, 5],
        "response_logprobs": [-0.1, -0.2, -0.3],
        "finish_reason": "stop",
        "verdict": {"status": "correct"},
        "reward": return_,
        "return": return_,
    }
    return row | changes


def table(rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(rows, infer_schema_length=None)


def advantages(samples: SampleSet) -> list[float]:
    """Return each sample's advantage, which all of its tokens share."""
    of_tokens = credit(samples.samples, CONFIG, masked=samples.masked).advantages
    assert [len(row) for row in of_tokens] == [sample.responded for sample in samples.samples]
    assert all(len(set(row.tolist())) == 1 for row in of_tokens)
    return [float(row[0]) for row in of_tokens]


GOOD = [turn("a", 0, 0.0), turn("a", 1, 1.0)]


def test_faults_single_and_constant_groups_are_left_out_and_counted() -> None:
    rows = [
        *GOOD,
        turn("a", 2, None, verdict={"status": "infrastructure_error"}, response_logprobs=[float("nan")]),
        turn("b", 0, 0.7),
        turn("c", 0, 0.3),
        turn("c", 1, 0.3),
    ]
    found = make_samples(table(rows), CONFIG, vocabulary=10)
    assert (found.groups_used, found.groups_single, found.groups_constant, found.turns_excluded) == (1, 1, 1, 1)
    assert advantages(found) == [-1.0, 1.0]


def test_each_turn_has_a_baseline_of_its_own() -> None:
    rows = [
        turn("a", sample, return_, turn_index=index)
        for index in (0, 1)
        for sample, return_ in enumerate((0.0, 2.0 + index))
    ]
    found = make_samples(table(rows), CONFIG, vocabulary=10)
    assert advantages(found) == [-2.0, 2.0, -3.0, 3.0]
    assert found.groups_used == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"return": float("nan")},
            r"turns.return: 1 of 2 .* expected a finite number, found nan \(trajectory a-0 turn 0\)",
        ),
        ({"return": None}, r"turns.return"),
        ({"reward": float("inf")}, r"turns.reward"),
        ({"response_logprobs": [-0.1, 0.2, -0.3]}, r"turns.response_logprobs: .* at most 0"),
        ({"response_logprobs": [-0.1, float("nan"), -0.3]}, r"turns.response_logprobs: .* finite"),
        ({"response_logprobs": [-0.1]}, r"turns.response_logprobs: .* as many entries as response_token_ids"),
        ({"response_token_ids": [], "response_logprobs": []}, r"turns.response_token_ids: .* at least one token"),
        ({"prompt_token_ids": [1, 10]}, r"turns.prompt_token_ids: .* token ids from 0 to 9"),
        ({"prompt_token_ids": [-1]}, r"turns.prompt_token_ids"),
        ({"verdict": None}, r"turns.verdict: 1 of 2 .* expected a verdict with a status, found None"),
    ],
)
def test_bad_turns_are_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_samples(table([GOOD[0] | changes, GOOD[1]]), CONFIG, vocabulary=10)


def test_nothing_to_learn_from_is_said() -> None:
    with pytest.raises(InputError, match="of 1 groups 0 have one sample and 1 have equal returns"):
        make_samples(table([turn("a", 0, 1.0), turn("a", 1, 1.0)]), CONFIG, vocabulary=10)
    with pytest.raises(InputError, match="expected at least one turn"):
        make_samples(table(GOOD).clear(), CONFIG, vocabulary=10)


@pytest.mark.parametrize("advantage", ["reinforce_pp", "gae"])
def test_estimators_without_a_baseline_keep_groups_of_one(advantage: str) -> None:
    config = CONFIG.model_copy(update={"advantage": advantage})
    wanting = config.model_copy(update={"wanted_groups": 9})
    found = make_samples(table([turn("a", 0, 1.0), turn("b", 0, 0.0)]), wanting, vocabulary=10)
    assert len(found.samples) == 2
    assert found.groups_missing == 0, "no further problem is drawn for them"
    assert make_samples(table(GOOD), CONFIG.model_copy(update={"wanted_groups": 9}), vocabulary=10).groups_missing == 8


@given(sizes=st.lists(st.integers(2, 9), min_size=1, max_size=20), steps=st.integers(1, 8), seed=st.integers(0, 99))
def test_whole_groups_are_dealt_evenly_and_the_same_each_time(sizes: list[int], steps: int, seed: int) -> None:
    rows = [turn(f"g{group}", sample, float(sample)) for group, size in enumerate(sizes) for sample in range(size)]
    samples = make_samples(table(rows), CONFIG, vocabulary=10).samples
    hands = deal_groups(samples, steps, (seed, 0, 0))
    assert sorted(row for hand in hands for row in hand) == list(range(len(samples)))
    assert len(hands) == min(steps, len(sizes))
    groups = [{samples[row].group for row in hand} for hand in hands]
    assert sum(len(of_hand) for of_hand in groups) == len(sizes)
    assert max(map(len, hands)) - min(map(len, hands)) <= max(sizes)
    assert hands == deal_groups(samples, steps, (seed, 0, 0))


CUT_OFF = [*GOOD, turn("a", 2, 2.0, finish_reason="length", response_token_ids=[3] * 8, response_logprobs=[-0.1] * 8)]


def test_cut_off_answers_are_kept_counted_and_where_wanted_left_out() -> None:
    kept = make_samples(table(CUT_OFF), UpdateConfig(overlong="keep"), vocabulary=10)
    masked = make_samples(table(CUT_OFF), UpdateConfig(overlong="mask"), vocabulary=10)
    assert kept.turns_overlong == masked.turns_overlong == 1
    assert advantages(kept) == [-1.5, 0.0, 1.5]
    assert advantages(masked) == [-1.5, 0.0]  # still compared with the one that was cut off


def test_long_answers_are_worth_less_as_they_near_the_limit() -> None:
    config = UpdateConfig(overlong="penalise", overlong_limit=10, overlong_buffer=4)
    found = make_samples(table(CUT_OFF), config, vocabulary=10)
    assert [sample.return_ for sample in found.samples] == [0.0, 1.0, 1.5]
    lengths = torch.tensor([0, 6, 7, 8, 10, 99])
    assert soft_overlong_penalty(lengths, limit=10, buffer=4).tolist() == [0.0, 0.0, 0.25, 0.5, 1.0, 1.0]


def test_a_penalty_without_its_limit_is_refused_before_anything_is_sampled() -> None:
    with pytest.raises(ValidationError, match=r"overlong_limit\n.*a number of response tokens with update.overlong"):
        UpdateConfig(overlong="penalise")


def conversation(sample: int, generator: float, optimizer: float) -> list[dict[str, Any]]:
    first = turn("a", sample, generator, role="generator")
    return [first, turn("a", sample, optimizer, role="optimizer", turn_index=1)]


TALKS = [*conversation(0, 0.3, 1.0), *conversation(1, 0.8, 0.6)]


def test_each_agent_learns_from_its_own_turns() -> None:
    for role in ("generator", "optimizer"):
        samples = make_samples(table(TALKS), CONFIG, 10, roles=(role,)).samples
        assert {sample.group[2] for sample in samples} == {role}
        assert len(samples) == 2
    assert len(make_samples(table(TALKS), CONFIG, 10).samples) == 4
    with pytest.raises(NothingToLearnError, match="no turn of tester"):
        make_samples(table(TALKS), CONFIG, 10, roles=("tester",))
    with pytest.raises(NothingToLearnError, match="nothing to learn from"):
        make_samples(table(conversation(0, 0.3, 1.0)), CONFIG, 10, roles=("generator",))


def test_the_credit_decides_what_turns_are_worth() -> None:
    def worth(**settings: Any) -> list[float]:
        return [sample.return_ for sample in make_samples(table(TALKS), UpdateConfig(**settings), 10).samples]

    assert worth(credit="return") == [0.3, 1.0, 0.8, 0.6]
    assert worth() == pytest.approx([0.6 * 0.3 + 0.4 * 1.0, 1.0, 0.6 * 0.8 + 0.4 * 0.6, 0.6])
    assert worth(credit="improvement", credit_discount=0.0) == pytest.approx([0.3, 0.7, 0.8, -0.2])
    assert worth(credit="improvement", credit_discount=0.5) == pytest.approx([0.65, 0.7, 0.7, -0.2])
    assert worth(credit="final", credit_discount=0.9) == pytest.approx(
        [0.3 * 0.3 + 0.7 * 1.0 * 0.9, 1.0, 0.3 * 0.8 + 0.7 * 0.6 * 0.9, 0.6]
    )


def test_no_tester_answers_a_stop() -> None:
    """0.3 of its own reward and 0.7 of the last one, discounted by the turns that remain: those of other agents, and
    the tester's after each kernel. On a stop there is no kernel."""
    config = UpdateConfig(credit="final_of_all_turns", credit_discount=0.9)
    ends = {0: "agent_stopped", 1: "turn_limit"}
    rows = [row | {"termination": ends[sample]} for sample in ends for row in conversation(sample, 1.0, 1.0 - sample)]
    samples = make_samples(table(rows), config, 10, roles=("generator",)).samples
    # kernel, test, stop: two turns remain; kernel, test, kernel, test: three
    assert [sample.return_ for sample in samples] == pytest.approx([0.3 + 0.7 * 0.9**2, 0.3])
    samples = make_samples(table(rows), config, 10, roles=("optimizer",)).samples
    assert [sample.return_ for sample in samples] == pytest.approx([1.0, 0.0])


def test_credit_is_assigned_before_other_agents_turns_are_left_out() -> None:
    config = UpdateConfig(credit="improvement", credit_discount=0.0)
    samples = make_samples(table(TALKS), config, 10, roles=("optimizer",)).samples
    assert [sample.return_ for sample in samples] == pytest.approx([0.7, -0.2])


def shared(group: str, sample: int, return_: float, made: int) -> dict[str, Any]:
    return turn(group, sample, return_, created_at=made)


def test_an_answer_that_several_conversations_have_is_one_sample() -> None:
    rows = [shared("g", 0, 1.0, 7), shared("g", 1, 3.0, 7), shared("g", 2, 0.0, 8), shared("g", 3, 0.0, 8)]
    rows += [turn("g", sample, float(sample), turn_index=1, created_at=9) for sample in range(4)]
    samples = make_samples(table(rows), CONFIG, 10, shares_answers=True)
    first = [sample for sample in samples.samples if sample.group[1] == 0]
    assert [(sample.trajectory, sample.return_) for sample in first] == [("g-0", 2.0), ("g-2", 0.0)]
    assert [sample.return_ for sample in samples.samples if sample.group[1] == 1] == [0.0, 1.0, 2.0, 3.0]
    assert len(make_samples(table(rows), CONFIG, 10).samples) == 8


def test_counterfactual_credit_compares_answers_to_the_same_kernel() -> None:
    """Two first kernels worth 0 and 1, of which two conversations each made something: the gain over the kernel, less
    that of the other one, is the advantage; who was given the better kernel does not matter."""
    config = UpdateConfig(credit="counterfactual", credit_discount=0.0)
    rows = []
    for sample, (before, made) in enumerate([(0.0, 0.5), (0.0, 0.1), (1.0, 1.2), (1.0, 0.6)]):
        kernel = 5 + sample // 2
        rows.append(shared("g", sample, before, kernel))
        answer = turn("g", sample, made, turn_index=1, prompt_token_ids=[1, kernel], created_at=20 + sample)
        rows.append(answer | {"role": "optimizer"})
    samples = make_samples(table(rows), config, 10, shares_answers=True)
    by_trajectory = dict(
        zip([(sample.trajectory, sample.group[1]) for sample in samples.samples], advantages(samples), strict=True)
    )
    assert by_trajectory["g-0", 1] == pytest.approx(0.4)
    assert by_trajectory["g-1", 1] == pytest.approx(-0.4)
    assert by_trajectory["g-2", 1] == pytest.approx(0.6)
    assert by_trajectory["g-3", 1] == pytest.approx(-0.6)
    assert by_trajectory["g-2", 0] == pytest.approx(1.0)
    assert by_trajectory["g-0", 0] == pytest.approx(-1.0)
    improvement = make_samples(
        table(rows), UpdateConfig(credit="improvement", credit_discount=0.0), 10, shares_answers=True
    )
    assert advantages(improvement) != advantages(samples)
