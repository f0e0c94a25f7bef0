"""Numbers with their nouns."""

import pytest

from flows.capacity.speed import describe
from flows.settings.configuration import load_configuration
from flows.settings.plurals import counted


@pytest.mark.parametrize(
    ("number", "noun", "expected"),
    [
        (0, "iteration", "0 iterations"),
        (1, "iteration", "1 iteration"),
        (1200, "held-out problem", "1,200 held-out problems"),
        (1, "trajectory", "1 trajectory"),
        (2, "trajectory", "2 trajectories"),
    ],
)
def test_nouns_follow_their_numbers(number: int, noun: str, expected: str):
    assert counted(number, noun) == expected


def test_the_steps_of_a_run_of_one_of_everything():
    ones = [
        "iterations",
        "rollout.problems_per_iteration",
        "rollout.samples_per_problem",
        "update.optimizer_steps",
        "rollout.episode.max_turns",
    ]
    config = load_configuration("deployments/configs/local.yaml", [f"{name}=1" for name in ones])
    assert "1 iteration: 1 problem × 1 sample, up to 1 turn, then 1 optimizer step" in describe(config)
