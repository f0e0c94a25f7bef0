"""Returns against the definition, published values and a second implementation."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.trajectories.returns import (
    carried_returns,
    credited,
    final_returns,
    final_returns_of_all_turns,
    improvement_returns,
    turn_returns,
)

REWARD = st.floats(0, 2.3)


@given(st.lists(REWARD, min_size=1, max_size=8), st.floats(0, 1))
def test_the_definition(rewards: list[float], gamma: float) -> None:
    returns = turn_returns(rewards, gamma)
    for turn, value in enumerate(returns):
        expected = math.fsum(gamma ** (later - turn) * rewards[later] for later in range(turn, len(rewards)))
        assert value == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        # tests/unit/update/policy_optimisation_vectors.json, γ = 0.4
        ([0.0, 0.3, 1.9], [0.424, 1.06, 1.9]),
        ([0.3, 0.0, 0.0], [0.3, 0.0, 0.0]),
        ([1.2, 1.3, 1.3], [1.928, 1.82, 1.3]),
        # A fast kernel late is worth more to its turn than slow ones are to theirs.
        ([0, 0, 2.3], [0.368, 0.92, 2.3]),
        ([0.3, 0.3, 0.3], [0.468, 0.42, 0.3]),
    ],
)
def test_published_values(rewards: list[float], expected: list[float]) -> None:
    assert turn_returns(rewards, 0.4) == pytest.approx(expected, abs=1e-6)


@given(st.lists(REWARD, max_size=5), st.floats(0, 1))
def test_an_unknown_last_reward_is_neither_zero_nor_hidden(known: list[float], gamma: float) -> None:
    assert turn_returns([*known, None], gamma) == [*turn_returns(known, gamma), None]


@given(st.lists(REWARD, min_size=1, max_size=8), st.floats(0, 1))
def test_final_by_the_documents_formula(rewards: list[float], discount: float) -> None:
    last = len(rewards) - 1
    for turn, value in enumerate(final_returns(rewards, discount)):
        assert value == pytest.approx(0.3 * rewards[turn] + 0.7 * rewards[-1] * discount ** (last - turn))


@given(st.lists(REWARD, min_size=1, max_size=8))
def test_improvements_without_discount_add_up_to_where_the_conversation_came(rewards: list[float]) -> None:
    # With rewards that only rise, what all turns added is the last reward.
    rising = sorted(rewards)
    assert improvement_returns(rising, 1.0)[0] == pytest.approx(rising[-1])
    own = improvement_returns(rewards, 0.0)
    for turn, value in enumerate(own):
        assert value == pytest.approx(rewards[turn] - max(rewards[:turn], default=0.0))


def test_keeping_the_best_adds_nothing_and_losing_it_costs() -> None:
    assert improvement_returns([0.3, 0.3], 0.9) == pytest.approx([0.3, 0.0])
    assert improvement_returns([1.0, 0.0, 1.5], 0.0) == pytest.approx([1.0, -1.0, 0.5])


@given(st.lists(REWARD, min_size=1, max_size=5), st.floats(0, 1))
def test_an_early_end_is_worth_as_much_as_holding_the_kernel(rewards: list[float], discount: float) -> None:
    held = [*rewards, *[rewards[-1]] * 3]
    assert carried_returns(held, discount)[: len(rewards)] == pytest.approx(carried_returns(rewards, discount))


def ended(rewards: list[float], turns: int = 3, success: float = 1.3) -> list[float]:
    """Return the rewards of the turns that are played: the last kernel is held until success or the limit."""
    held = [*rewards, *[rewards[-1]] * (turns - len(rewards))]
    return held[: next((turn + 1 for turn, reward in enumerate(held) if reward >= success), turns)]


@given(st.lists(st.floats(0, 1.29), max_size=2), REWARD, REWARD, st.floats(0, 1))
def test_a_better_kernel_never_has_a_lower_return(
    before: list[float], one: float, other: float, discount: float
) -> None:
    worse, better = sorted((one, other))
    lower = carried_returns(ended([*before, worse]), discount)
    higher = carried_returns(ended([*before, better]), discount)
    for turn in range(len(before) + 1):
        assert (higher[turn] or 0.0) >= (lower[turn] or 0.0) - 1e-12


def test_the_sum_of_played_turns_prefers_the_slower_kernel() -> None:
    slower, faster = ended([1.0]), ended([1.3])
    assert turn_returns(slower, 0.4)[0] == pytest.approx(1.56)
    assert turn_returns(faster, 0.4)[0] == pytest.approx(1.3)
    assert carried_returns(slower, 0.4)[0] == pytest.approx(1.0)
    assert carried_returns(faster, 0.4)[0] == pytest.approx(1.3)


@pytest.mark.parametrize("credit", ["return", "carried", "final", "final_of_all_turns", "improvement"])
@given(known=st.lists(REWARD, max_size=5), discount=st.floats(0, 1))
def test_every_credit_knows_nothing_of_a_fault(credit: Any, known: list[float], discount: float) -> None:
    assert credited([*known, None], credit, discount) == [*credited(known, credit, discount), None]


def test_the_testers_turns_may_count_in_the_discount() -> None:
    """Kernel, test, kernel, test: three turns come after the first kernel, one after the last."""
    assert final_returns_of_all_turns([0.1, 2.0], 0.9) == pytest.approx([0.03 + 1.4 * 0.9**3, 0.6 + 1.4 * 0.9])
    assert final_returns_of_all_turns([], 0.9) == []


def test_the_tester_has_no_turn_after_a_stop() -> None:
    """Kernel, test, stop: two turns come after the kernel, none after the stop."""
    assert credited([1.0, 1.0], "final_of_all_turns", 0.9, stopped=True) == pytest.approx([0.3 + 0.7 * 0.9**2, 1.0])
    assert credited([1.0, 1.0], "final_of_all_turns", 0.9) == pytest.approx([0.3 + 0.7 * 0.9**3, 0.3 + 0.7 * 0.9])
    # kernel, test, kernel, test, stop
    assert credited([0.1, 1.2, 1.2], "final_of_all_turns", 0.9, stopped=True) == pytest.approx(
        [0.3 * 0.1 + 0.7 * 1.2 * 0.9**4, 0.3 * 1.2 + 0.7 * 1.2 * 0.9**2, 1.2]
    )
    assert credited([1.0, 1.0], "final", 0.9, stopped=True) == credited([1.0, 1.0], "final", 0.9)
