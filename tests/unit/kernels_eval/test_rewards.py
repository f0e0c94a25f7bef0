"""Rewards: the formulas of the architecture page, and no reward without a verdict on the kernel."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.rewards import REWARDS, reward_of
from kernels_eval.verdict import Status, Verdict

COMPILED = Verdict(status=Status.INCORRECT, compiled=True)


def correct(speedup: float) -> Verdict:
    return Verdict(status=Status.CORRECT, compiled=True, correct=True, speedup=speedup)


@pytest.mark.parametrize(
    ("verdict", "reward"),
    [
        (Verdict(status=Status.COMPILE_ERROR), 0.0),
        (COMPILED, 0.1),
        (Verdict(status=Status.REJECTED, compiled=True, rejection_reason="library_compute"), 0.0),
        (correct(0.5), 0.3),
        (correct(1.0), 0.3),
        (correct(2.0), 1.3),
        (correct(3.0), 2.3),
        (correct(30.0), 2.3),
    ],
)
def test_kernelbench(verdict: Verdict, reward: float) -> None:
    assert reward_of("kernelbench", verdict) == pytest.approx(reward)


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.sampled_from(sorted(REWARDS)))
def test_faster_is_never_worth_less_and_correct_is_worth_most(first: float, second: float, name: str) -> None:
    slow, fast = sorted((first, second))
    assert reward_of(name, correct(slow)) <= reward_of(name, correct(fast))
    if name == "kernelbench":
        assert reward_of(name, COMPILED) < reward_of(name, correct(slow)) <= 2.3


@pytest.mark.parametrize("name", sorted(REWARDS))
def test_a_fault_has_no_reward(name: str) -> None:
    with pytest.raises(InfrastructureError):
        reward_of(name, Verdict(status=Status.INFRASTRUCTURE_ERROR))


def test_an_unknown_reward_is_named() -> None:
    with pytest.raises(InputError, match="kernelbench"):
        reward_of("kernelbrench", COMPILED)
