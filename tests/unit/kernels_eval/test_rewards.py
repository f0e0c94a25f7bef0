"""Rewards: the formulas of the architecture page, and no reward without a verdict on the kernel."""

import importlib
import math
import sys
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval import rewards, sources
from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.rewards import REWARDS, TERMS, Answer, RewardText, reward_bounds, reward_of
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


def test_roofline_is_paid_for_the_way_to_it() -> None:
    scored = [correct(2.0).model_copy(update={"sol_score": score}) for score in (0.2, 0.5, 1.0)]
    assert [reward_of("roofline", each) for each in scored] == pytest.approx([0.5, 0.8, 1.3])
    without = [reward_of("roofline", correct(speedup)) for speedup in (0.4, 1.0, 7.0)]
    assert without == pytest.approx([0.5, 0.8, 0.8])
    assert reward_of("roofline", COMPILED) == 0.0
    assert reward_bounds("roofline") == (0.0, 1.3)


def test_correct_does_not_look_at_the_time() -> None:
    assert [reward_of("correct", each) for each in (COMPILED, correct(0.01), correct(9.0))] == [0.0, 1.0, 1.0]


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


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a reward and a term of the user's, which is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    text = (
        "def fast(verdict):\n    return verdict.speedup if verdict.correct else -1\n"
        "def bounded(verdict):\n    return 2.0\nbounded.bounds = (0.0, 2.0)\n"
        "def short(answer):\n    return float(answer.tokens < 100)\n"
        "def nothing(verdict):\n    return None\n"
        "def nan(verdict):\n    return float('nan')\n"
    )
    (tmp_path / "own_rewards.py").write_text(text)
    importlib.invalidate_caches()
    sources.forget()
    rewards._loaded.cache_clear()
    yield tmp_path
    sys.modules.pop("own_rewards", None)
    rewards._loaded.cache_clear()
    sources.forget()


@pytest.mark.usefixtures("own")
def test_a_reward_and_a_term_of_your_own() -> None:
    assert reward_of("own_rewards:fast", correct(1.5)) == 1.5
    assert reward_of("own_rewards:fast + 0.5*own_rewards:short", COMPILED, Answer("", 5)) == pytest.approx(-0.5)
    assert reward_of("kernelbench - 1*own_rewards:short", COMPILED, Answer("", 5)) == pytest.approx(0.1 - 1)
    assert reward_bounds("own_rewards:fast") == (-math.inf, math.inf)
    assert reward_bounds("own_rewards:bounded - 0.5*length") == (-0.5, 2.0)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("own_rewards:nothing", "own_rewards:nothing raised TypeError"),
        ("own_rewards:nan", "returned nan, expected a finite number"),
        ("own_rewards:slow", "it defines fast, bounded, short"),
        ("own_reward:fast", "there is no module own_reward"),
    ],
)
def test_a_reward_that_gives_no_number_or_is_missing_is_named(name: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        reward_of(name, correct(1.5))


def test_the_source_of_reward_and_terms_counts(own: Path) -> None:
    mark = get_args(RewardText)[1]
    before = mark.source_of("kernelbench + 0.5*own_rewards:short")
    (own / "own_rewards.py").write_text("def short(answer):\n    return 0.0\n")
    sources.forget()
    assert mark.source_of("kernelbench + 0.5*own_rewards:short") != before
    assert mark.is_ours("kernelbench - 0.2*length")
    assert not mark.is_ours("kernelbench - 0.2*own_rewards:short")
