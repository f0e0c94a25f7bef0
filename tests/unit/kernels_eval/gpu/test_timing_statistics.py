"""Samples of device time, and lower bounds."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.gpu.timing_statistics import (
    MemoryRates,
    estimate,
    floor_s,
    is_settled,
    peak_s,
)

H100 = MemoryRates(3.35e12, 50 << 20, 989e12)


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=200))
def test_the_median_lies_in_its_interval(samples: list[float]) -> None:
    found = estimate(samples)
    assert min(samples) <= found.low <= found.median <= found.high <= max(samples)
    assert found.samples == len(samples)


def test_the_interval_covers_the_true_median_as_often_as_it_says() -> None:
    generator = random.Random(1)
    covered = 0
    for _ in range(1000):
        found = estimate([generator.expovariate(1.0) for _ in range(40)])
        covered += found.low <= 0.6931 <= found.high
    assert covered >= 940


@pytest.mark.parametrize(
    ("count", "left_out"), [(3, 0), (5, 0), (6, 0), (8, 0), (9, 1), (10, 1), (12, 2), (15, 3), (20, 5), (30, 9)]
)
def test_the_interval_s_ends_are_those_of_the_tables(count: int, left_out: int) -> None:
    """Ranks of the 95 % interval of a median, as statistical tables have them (9: 2nd and 8th; 20: 6th and 15th)."""
    found = estimate([float(number) for number in range(count)])
    assert (found.low, found.high) == (left_out, count - 1 - left_out)


def test_one_slow_round_of_nine_does_not_go_on_for_ever() -> None:
    assert is_settled([1.0] * 8 + [1.5], [2.0] * 9, 0.01)
    assert not is_settled([1.0] * 7 + [1.5], [2.0] * 8, 0.01)


def test_the_interval_narrows_with_the_square_root() -> None:
    generator = random.Random(2)
    widths = [estimate([generator.gauss(1.0, 0.1) for _ in range(count)]).half_width for count in (25, 2500)]
    assert 5 < widths[0] / widths[1] < 25


def test_outliers_move_the_median_little() -> None:
    assert estimate([1.0] * 30 + [100.0] * 5).median == 1.0


def test_no_honest_kernel_is_below_the_floor() -> None:
    """Figures of an H100: an fp32 copy of 64 MiB moves about 2.8 TB/s, an 8192³ bf16 product runs at 800 TFLOP/s."""
    size = 64 << 20
    assert floor_s(size, size, 0, H100) < 2 * size / 2.8e12
    assert floor_s(3 * 8192**2 * 2, 0, 2 * 8192**3, H100) < 2 * 8192**3 / 800e12
    assert floor_s(4, 4, 0, H100) < 2e-6


def test_what_beats_the_memory_by_far_is_below_the_floor() -> None:
    size = 256 << 20
    assert floor_s(size, size, 0, H100) > 2 * size / 20e12


def test_the_peak_is_that_of_what_takes_longer() -> None:
    assert peak_s(H100.dram_bytes_per_s, 0, H100) == 1.0
    assert peak_s(H100.dram_bytes_per_s, 3 * H100.peak_flops, H100) == 3.0


def test_settled_needs_both() -> None:
    steady, noisy = [1.0] * 30, [0.5, 1.5] * 15
    assert is_settled(steady, steady, 0.01)
    assert not is_settled(steady, noisy, 0.01)
    assert not is_settled(noisy, steady, 0.01)
