"""The statistics against slow, independent ones."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.evaluation.statistics import (
    Ratio,
    estimates,
    figure_of,
    interval_of,
    paired_differences,
    pass_at_k,
    resample,
)


@given(st.integers(1, 8), st.data())
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_sample(n: int, data: st.DataObject) -> None:
    correct, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    samples = [1] * correct + [0] * (n - correct)
    subsets = list(itertools.combinations(samples, k))
    expected = sum(any(subset) for subset in subsets) / len(subsets)
    assert pass_at_k(np.array([n]), np.array([correct]), k)[0] == pytest.approx(expected, abs=1e-12)


def test_pass_at_k_needs_k_samples() -> None:
    assert np.isnan(pass_at_k(np.array([3, 4]), np.array([3, 4]), 4)).tolist() == [True, False]


def test_pass_at_k_does_not_overflow() -> None:
    value = pass_at_k(np.array([100_000]), np.array([50_000]), 64)[0]
    assert value == pytest.approx(1.0)


def test_bootstrap_interval_agrees_with_a_plain_loop() -> None:
    generator = np.random.default_rng(0)
    numerators, denominators = generator.random(40), generator.integers(0, 4, 40).astype(float)
    draws = resample({"a": Ratio(numerators, denominators)}, 4000, seed=1)["a"]
    plain = []
    for _ in range(4000):
        chosen = generator.integers(0, 40, 40)
        plain.append(numerators[chosen].sum() / denominators[chosen].sum())
    for share in (0.025, 0.5, 0.975):
        assert np.quantile(draws, share) == pytest.approx(np.quantile(plain, share), abs=0.02)


def test_bootstrap_is_seeded_and_chunked_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    ratios = {"a": Ratio(np.arange(10.0), np.ones(10))}
    whole = resample(ratios, 100, seed=5)["a"]
    assert np.array_equal(whole, resample(ratios, 100, seed=5)["a"])
    monkeypatch.setattr("tasks.evaluation.statistics._CELLS_AT_ONCE", 70)
    assert np.array_equal(whole, resample(ratios, 100, seed=5)["a"])


def test_interval_covers_the_true_value_about_as_often_as_it_says() -> None:
    generator = np.random.default_rng(2)
    covered = 0
    for trial in range(200):
        values = (generator.random(60) < 0.4).astype(float)
        interval = interval_of(resample({"a": Ratio(values, np.ones(60))}, 400, seed=trial)["a"], 0.95)
        assert interval is not None
        covered += interval[0] <= 0.4 <= interval[1]
    assert 0.88 <= covered / 200 <= 0.99


def test_geometric_mean_is_the_exponential_of_the_mean_logarithm() -> None:
    speedups = [[2.0, 8.0], [0.5], []]
    ratio = Ratio(
        np.array([sum(map(math.log, row)) for row in speedups]), np.array([len(row) * 1.0 for row in speedups]), True
    )
    assert figure_of(ratio) == pytest.approx((2.0 * 8.0 * 0.5) ** (1 / 3))


def test_nothing_to_measure_is_none() -> None:
    nothing = Ratio(np.zeros(3), np.zeros(3))
    assert estimates({"a": nothing}, 100, 0.95, 0)["a"] == (None, None)
    assert paired_differences({"a": nothing}, {"a": nothing}, 100, 0.95, 0)["a"] == (None, None)


def test_pairing_removes_what_both_share() -> None:
    generator = np.random.default_rng(3)
    hardness = generator.random(50)
    before, after = Ratio(hardness, np.ones(50)), Ratio(hardness + 0.1, np.ones(50))
    difference = paired_differences({"a": before}, {"a": after}, 500, 0.95, 0)["a"]
    assert difference.value == pytest.approx(0.1)
    assert difference.interval is not None
    assert difference.interval[1] - difference.interval[0] < 1e-9


def test_pairing_is_by_position_of_the_problem() -> None:
    generator = np.random.default_rng(4)
    first, second = generator.random(30), generator.random(30)
    difference = paired_differences({"a": Ratio(first, np.ones(30))}, {"a": Ratio(second, np.ones(30))}, 4000, 0.95, 0)[
        "a"
    ]
    alone = interval_of(resample({"a": Ratio(second - first, np.ones(30))}, 4000, seed=9)["a"], 0.95)
    assert difference.interval == pytest.approx(alone, abs=0.02)
