"""Figures of guesses, against their definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extras.tester.examples import Example
from extras.tester.figures import auroc, calibration_error, can_be_measured, chosen, figures_of

GUESSES = st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.7, 0.9, 1.0]), st.booleans()), min_size=2)


def example(problem: str, correct: bool) -> Example:
    return Example(problem, "", "", True, correct, frozenset())


@given(GUESSES.filter(lambda found: len({truth for _, truth in found}) == 2))
def test_auroc_is_the_chance_that_a_true_one_is_ranked_higher(found: list[tuple[float, bool]]) -> None:
    pairs = [(yes, no) for yes, right in found if right for no, wrong in found if not wrong]
    by_hand = sum(1.0 if yes > no else 0.5 if yes == no else 0.0 for yes, no in pairs) / len(pairs)
    guesses, truths = np.array([guess for guess, _ in found]), np.array([truth for _, truth in found])
    assert auroc(guesses, truths) == pytest.approx(by_hand)


@given(GUESSES)
def test_the_calibration_error_by_its_definition(found: list[tuple[float, bool]]) -> None:
    by_hand = 0.0
    for place in range(10):
        here = [(guess, truth) for guess, truth in found if min(int(guess * 10), 9) == place]
        if here:
            distance = abs(sum(guess for guess, _ in here) - sum(truth for _, truth in here)) / len(here)
            by_hand += len(here) / len(found) * distance
    guesses, truths = np.array([guess for guess, _ in found]), np.array([truth for _, truth in found])
    assert calibration_error(guesses, truths) == pytest.approx(by_hand)


def test_figures_of_a_few_guesses() -> None:
    found = figures_of([0.9, 0.8, 0.3, 0.6], [True, True, False, False])
    assert found == pytest.approx(
        {
            "kernels": 4,
            "share": 0.5,
            "accuracy": 0.75,
            "auroc": 1.0,
            "brier": (0.01 + 0.04 + 0.09 + 0.36) / 4,
            "calibration_error": (0.1 + 0.2 + 0.3 + 0.6) / 4,
        }
    )


def test_what_can_be_measured() -> None:
    assert can_be_measured([True] * 10 + [False] * 10)
    assert not can_be_measured([True] * 100 + [False] * 9)


def test_the_most_promising_of_several_is_judged() -> None:
    kernels = [example("a", correct) for correct in (False, True, True, False, True)] + [example("b", False)] * 2
    found = chosen(kernels, [0.1, 0.9, 0.2, 0.8, 0.5, 0.3, 0.4], draws=2)
    assert found == pytest.approx({"groups": 3, "tester": 1 / 3, "random": 1 / 3, "best": 2 / 3})
    assert chosen(kernels, [0.0] * 7, draws=6) == {"groups": 0}
