"""Rewards: the formulas of the architecture page, and no reward without a verdict on the kernel."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.rewards import REWARDS, TERMS, Answer, reward_bounds, reward_of
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


def fenced(code: str) -> str:
    return f"```python\n{code}\n```"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (fenced("x = 1"), 1.0),
        ("\n" + fenced("x = 1") + "\n", 1.0),
        ("<think>\nhm\n</think>\n\n" + fenced("x = 1"), 1.0),
        ('````python\n"""\n```\n"""\n````', 1.0),
        ("Here: " + fenced("x = 1"), 0.0),
        (fenced("x = 1") + "\nDone.", 0.0),
        (fenced("x = 1") + "\n" + fenced("y = 1"), 0.0),
        ("```\nx = 1\n```", 0.0),
        ("```python\nx = 1", 0.0),
        ("x = 1", 0.0),
        ("", 0.0),
    ],
)
def test_the_formatting_term(text: str, value: float) -> None:
    assert TERMS["format"](Answer(text, 1)) == value


def test_terms_are_added() -> None:
    answer = Answer(fenced("x"), 1024)
    assert reward_of("kernelbench - 0.2*length + 0.05*format", COMPILED, answer) == pytest.approx(0.1 - 0.05 + 0.05)
    assert reward_of("kernelbench-1*length", COMPILED, Answer("", 10**6)) == pytest.approx(0.1 - 1)
    assert reward_of("kernelbench-1*length", COMPILED) == pytest.approx(0.1), "the verdict alone"


@given(
    base=st.sampled_from(sorted(REWARDS)),
    terms=st.lists(st.tuples(st.sampled_from("+-"), st.integers(0, 99), st.sampled_from(sorted(TERMS))), max_size=3),
    verdict=st.sampled_from([COMPILED, Verdict(status=Status.TIMEOUT), correct(0.1), correct(1.5), correct(90.0)]),
    answer=st.builds(Answer, st.sampled_from(["", fenced("x")]), st.integers(0, 10_000)),
)
def test_bounds_hold(base: str, terms: list[tuple[str, int, str]], verdict: Verdict, answer: Answer) -> None:
    name = base + "".join(f" {sign} {weight / 10}*{term}" for sign, weight, term in terms)
    lowest, highest = reward_bounds(name)
    assert lowest - 1e-9 <= reward_of(name, verdict, answer) <= highest + 1e-9


@pytest.mark.parametrize(
    "name",
    ["kernelbench - 0.2*speed", "kernelbench 0.2*length", "kernelbench - length", "kernelbench - 0.2*length x", ""],
)
def test_what_is_no_reward_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="reward: "):
        reward_of(name, COMPILED)
