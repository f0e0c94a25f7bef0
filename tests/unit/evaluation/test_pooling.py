"""Pooling against a published example, and what it does with runs that agree, differ or cannot be compared."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.errors import InputError
from tasks.evaluation.pooling import Change, pool, pool_folders


def change(value: float, error: float) -> Change:
    return Change(value, value - 1.959964 * error, value + 1.959964 * error)


def test_dersimonian_and_laird_by_hand() -> None:
    # Weights 1, 1: mean 2, Q = 2, tau² = (2 − 1) / (2 − 1) = 1, then variance (1 + 1) / 2 = 1; t(0.975, 1) = 12.706.
    pooled, tau, heterogeneity = pool([change(1.0, 1.0), change(3.0, 1.0)], 0.95)
    assert pooled.value == pytest.approx(2.0)
    assert tau == pytest.approx(1.0, rel=1e-5)
    assert heterogeneity == pytest.approx(0.5, rel=1e-5)
    assert pooled.high - pooled.value == pytest.approx(12.7062, rel=1e-4)


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(0.01, 1)), min_size=2, max_size=8))
def test_the_pooled_change_lies_among_those_of_the_runs(found: list[tuple[float, float]]) -> None:
    values = [value for value, _ in found]
    pooled, tau, heterogeneity = pool([change(*each) for each in found], 0.95)
    assert min(values) - 1e-9 <= pooled.value <= max(values) + 1e-9
    assert pooled.low <= pooled.value <= pooled.high
    assert tau >= 0
    assert 0 <= heterogeneity <= 1


def test_runs_that_agree_are_surer_together_and_one_alone_stays_as_it_is() -> None:
    one = change(0.1, 0.04)
    together, tau, _ = pool([one] * 8, 0.95)
    assert tau == 0
    assert together.high - together.low < one.high - one.low
    assert pool([one], 0.95)[0] == one


def test_an_interval_of_no_width_is_no_certainty() -> None:
    pooled, _, _ = pool([Change(0.0, 0.0, 0.0), change(0.2, 0.1)], 0.95)
    assert pooled.value == pytest.approx(0.1)


def written(folder: Path, delta: float, **more: Any) -> Path:
    """A folder with the summary of a run whose greedy final reward changed by `delta`, on harder problems by less."""
    deltas = {"delta_mean_reward": delta, "delta_mean_reward_ci": [delta - 0.1, delta + 0.1]}
    harder = {"delta_mean_reward": -delta, "delta_mean_reward_ci": [-delta - 0.1, -delta + 0.1]}
    greedy = {**deltas, "harder": harder, "over_control": deltas}
    folder.mkdir()
    content = {"heldout": {"harder": None}, "heldout_greedy": greedy, "confidence": 0.95, **more}
    (folder / "summary.json").write_text(json.dumps(content))
    return folder


def test_the_primary_outcome_comes_first_and_harder_problems_apart(tmp_path: Path) -> None:
    found = pool_folders([written(tmp_path / str(seed), 0.1 + 0.01 * seed) for seed in range(3)])
    first = found[0].contrast
    assert (first.policies, first.problems, first.decoding, first.figure) == (
        "after RL − before RL", "standard", "greedy", "mean_reward"
    )  # fmt: skip
    assert [each.is_primary for each in found].count(True) == 2, "RL − SFT and RL − control"
    (harder,) = [each for each in found if each.contrast.problems == "harder"]
    assert harder.change.value == pytest.approx(-0.11)
    assert not harder.is_primary


def test_what_cannot_be_pooled_is_refused(tmp_path: Path) -> None:
    one, two = written(tmp_path / "one", 0.1), written(tmp_path / "two", 0.1)
    other = written(tmp_path / "other", 0.1, primary={"outcome": "greedy correct"})
    with pytest.raises(InputError, match=r"expected two folders or more .* found 1"):
        pool_folders([one])
    with pytest.raises(InputError, match=r"evaluation.primary differs: found greedy correct, greedy mean_reward"):
        pool_folders([one, two, other])
    with pytest.raises(InputError, match=r"expected summary.json or comparison.json"):
        pool_folders([one, tmp_path])
    (two / "summary.json").write_text("{")
    with pytest.raises(InputError, match=r"summary.json: not the figures of a run"):
        pool_folders([one, two])
