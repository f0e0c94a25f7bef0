"""Admission of a suite: what leaves room to learn, what does not, and what was not measured."""

from typing import Any

import pytest

from tasks.evaluation.admission import admission, late_gain

ROOM: dict[str, Any] = {
    "first_correct": 0.45,
    "correct": 0.5,
    "pass_1": 0.5,
    "pass_4": 0.6,
    "pass_16": 0.8,
    "found_reward": 1.4,
    "turns": [{}, {"repair": {"gain": 0.1, "gain_ci": [0.02, 0.18]}}],
}
GREEDY: dict[str, Any] = {"before": {"mean_reward": 1.1}}
RISING = [{"mean_reward": 0.1 * number} for number in range(8)]


def met(
    before: dict[str, Any],
    iterations: list[dict[str, Any]] = RISING,
    greedy: dict[str, Any] | None = GREEDY,
) -> list[bool | None]:
    return [criterion.is_met for criterion in admission({"before": before}, iterations, greedy)]


def test_a_suite_with_room_meets_every_condition() -> None:
    assert met(ROOM) == [True] * 5
    names = [criterion.name for criterion in admission({"before": ROOM}, RISING)]
    assert "pass@16 less pass@1" in names, "the largest k that was measured"


@pytest.mark.parametrize(
    ("place", "changes"),
    [
        (0, {"first_correct": 0.85}),
        (0, {"first_correct": 0.1}),
        (1, {"pass_16": 0.6}),
        (2, {"turns": [{}, {"repair": {"gain": 0.1, "gain_ci": [-0.02, 0.2]}}]}),
        (2, {"turns": [{}, {"repair": {"gain": -0.2, "gain_ci": [-0.3, -0.1]}}]}),
        (3, {"found_reward": 1.2}),
    ],
)
def test_each_condition_can_fail(place: int, changes: dict[str, Any]) -> None:
    assert met({**ROOM, **changes}) == [number != place for number in range(5)]


def test_a_curve_that_has_stopped_to_rise_fails() -> None:
    flat = [{"mean_reward": min(0.2 * number, 1.0)} for number in range(12)]
    assert met(ROOM, flat)[4] is False


def test_what_was_not_measured_is_neither_met_nor_failed() -> None:
    assert met({"correct": 0.5, "pass_1": 0.5}, RISING[:3], None) == [None] * 5
    assert late_gain([1.0] * 7) is None
