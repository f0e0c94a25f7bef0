"""Signs of collapse: each limit, and a run that ends at one."""

from pathlib import Path
from typing import Any

import pytest

from tasks.tracking.collapse import CollapseError, look_for_collapse, signs_of_collapse
from tasks.tracking.config import CollapseConfig
from tasks.tracking.figures import FigureLine, append_line, new_line

LIMITS = CollapseConfig()
UPDATED = ("kl", "entropy", "constant_groups")
GOOD: dict[str, Any] = {"kl": 0.05, "entropy": 0.2, "constant_groups": 0.2, "mean_reward": 1.0}


def run_of(*iterations: dict[str, Any]) -> list[FigureLine]:
    """The figures of a run, of which each iteration names those that differ from good ones."""
    lines: list[FigureLine] = []
    for number, changed in enumerate(iterations):
        figures = GOOD | changed
        lines.append(new_line(number, "rollout", f"r{number}", {"mean_reward": figures["mean_reward"]}))
        lines.append(new_line(number, "update", f"u{number}", {key: figures[key] for key in UPDATED}))
    return lines


@pytest.mark.parametrize(
    ("iterations", "sign"),
    [
        ([{}, {"kl": 0.6}], "iteration 1: KL to the reference 0.6 nats a token, above tracking.collapse.kl 0.5"),
        (
            [{}, {"entropy": 0.01}],
            "iteration 1: entropy 0.01 after 0.2 in the first update, less than tracking.collapse.entropy 0.6 of it",
        ),
        (
            [{}, {"constant_groups": 0.55}],
            "iteration 1: share of groups without a gradient 0.55 after 0.2 in the first update, "
            "above tracking.collapse.constant_groups 0.5",
        ),
        (
            [{}, {"mean_reward": 1.4}, {"mean_reward": 0.6}],
            "iteration 2: mean reward 0.6 after 1.4 at best, less than tracking.collapse.reward 0.5 of it",
        ),
    ],
)
def test_a_sign_says_what_was_found_and_which_limit(iterations: list[dict[str, Any]], sign: str) -> None:
    assert signs_of_collapse(run_of(*iterations), LIMITS) == [sign]


@pytest.mark.parametrize(
    "iterations",
    [
        [],
        [{}],
        [{}, {}, {}],
        [{"constant_groups": 0.6}, {"constant_groups": 0.75}],  # easy problems from the start
        [{"kl": 0.7}, {}],  # one that is over is not said again
        [{"kl": None, "mean_reward": None}],
        [{"mean_reward": 0.0}],
        [{"mean_reward": 0.02}, {"mean_reward": 0.006}],
        [{"mean_reward": -1.0}, {"mean_reward": -2.0}],
    ],
)
def test_no_sign(iterations: list[dict[str, Any]]) -> None:
    assert signs_of_collapse(run_of(*iterations), LIMITS) == []


def test_a_run_that_begins_above_the_limit_shows_a_sign_halfway_to_no_gradient_at_all() -> None:
    (sign,) = signs_of_collapse(run_of({"constant_groups": 0.6}, {"constant_groups": 0.85}), LIMITS)
    assert sign.startswith("iteration 1: share of groups without a gradient 0.85 after 0.6 in the first update")


def test_limits_that_are_none_are_not_looked_at() -> None:
    lines = run_of({}, {"kl": 9.0, "entropy": 0.0, "constant_groups": 0.9, "mean_reward": 0.1})
    assert len(signs_of_collapse(lines, LIMITS)) == 4
    unlimited = CollapseConfig(kl=None, entropy=None, constant_groups=None, reward=None)
    assert signs_of_collapse(lines, unlimited) == []


def test_a_run_ends_only_where_it_is_to(tmp_path: Path) -> None:
    for line in run_of({}, {"kl": 2.0}):
        append_line(tmp_path, line)
    said: list[str] = []
    look_for_collapse(tmp_path, LIMITS, said.append)
    assert said == ["collapse? iteration 1: KL to the reference 2 nats a token, above tracking.collapse.kl 0.5"]
    with pytest.raises(CollapseError, match=r"iteration 1: KL .*; the run ends here \(tracking\.collapse\.stop\)"):
        look_for_collapse(tmp_path, CollapseConfig(stop=True), said.append)
