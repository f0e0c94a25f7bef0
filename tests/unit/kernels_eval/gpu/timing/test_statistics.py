"""Samples of device time, and lower bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.gpu.device.memory_rates import MemoryRates, floor_s, peak_s
from kernels_eval.gpu.timing.statistics import beside_candidate, estimate, is_settled, overlapped_s, sol_score

H100 = MemoryRates(3.35e12, 50 << 20, 989e12)


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=200))
def test_the_time_is_among_the_three_fastest(samples: list[float]) -> None:
    found = estimate(samples)
    assert min(samples) <= found.seconds <= sorted(samples)[:3][-1]
    assert found.samples == len(samples)
    assert found.spread >= 0


@given(st.lists(st.floats(1.0, 1.001), min_size=3, max_size=10), st.lists(st.floats(1.1, 50.0), max_size=30))
def test_disturbed_rounds_change_nothing(quiet: list[float], disturbed: list[float]) -> None:
    assert estimate([*disturbed, *quiet]).seconds == estimate(quiet).seconds
    assert is_settled([*disturbed, *quiet], quiet, 0.01)


def test_one_round_that_is_too_fast_is_not_believed() -> None:
    assert not is_settled([0.5, 1.0, 1.0, 1.0], [1.0] * 4, 0.01)
    assert estimate([0.5, 1.0, 1.0, 1.0]).seconds == 1.0


def test_rounds_of_an_h100_beside_three_other_workers() -> None:
    """Microseconds of a reference as measured: the median of all is 19.6 and its 95 % interval 19.6 to 24.8."""
    measured = [19.61, 19.58, 28.52, 19.69, 19.62, 19.56, 19.61, 19.58, 21.06, 24.79]
    assert estimate(measured).seconds == pytest.approx(19.6, rel=0.005)
    assert is_settled(measured[:4], measured[:4], 0.01)


def test_no_honest_kernel_is_below_the_floor() -> None:
    """Figures of an H100: an fp32 copy of 64 MiB moves about 2.8 TB/s, an 8192³ bf16 product runs at 800 TFLOP/s.

    A product of a diagonal matrix and one of 4096 × 4096 in fp32 was timed at 52.81 µs.
    """
    size = 64 << 20
    assert floor_s(size, size, H100) < 2 * size / 2.8e12
    assert floor_s(3 * 8192**2 * 2, 0, H100) < 2 * 8192**3 / 800e12
    assert floor_s(4096 * 4 + size, size, H100) < 52.81e-6
    assert floor_s(4, 4, H100) < 2e-6


def test_what_beats_the_memory_by_far_is_below_the_floor() -> None:
    size = 256 << 20
    assert floor_s(size, size, H100) > 2 * size / 20e12


def test_the_peak_is_that_of_what_takes_longer() -> None:
    assert peak_s(H100.dram_bytes_per_s, 0, H100) == 1.0
    assert peak_s(H100.dram_bytes_per_s, 3 * H100.peak_flops, H100) == 3.0


def test_settled_needs_both() -> None:
    steady, noisy = [1.0] * 30, [1.0, 1.1, 1.2]
    assert is_settled(steady, steady, 0.01)
    assert not is_settled(steady, noisy, 0.01)
    assert not is_settled(noisy, steady, 0.01)


@pytest.mark.parametrize(
    ("call_s", "baseline_s", "score"),
    [
        (4e-6, 4e-6, 0.5),
        (1e-6, 4e-6, 1.0),
        (0.5e-6, 4e-6, 1.0),
        (7e-6, 4e-6, 1 / 3),
        (2.5e-6, 4e-6, 2 / 3),
        (1e-6, 1e-6, None),
    ],
)
def test_the_score_between_baseline_and_speed_of_light(call_s: float, baseline_s: float, score: float | None) -> None:
    found = sol_score(call_s, baseline_s, roof_s=1e-6)
    assert found == (None if score is None else pytest.approx(score))


@pytest.mark.parametrize(
    ("serial_s", "reference_serial_s", "late_s"),
    [
        (3.2e-6, 9e-6, 0.0),  # noise
        (4.5e-6, 10.5e-6, 0.0),  # the reference's call alone takes as much longer
        (2.4e-6, 7.2e-6, 0.0),  # fresh inputs, for both
        (9e-6, 9e-6, 6e-6),  # three calls overlapped
        (7.2e-6, 7.2e-6, 4.8e-6),
        (3.4e-6, None, 0.0),  # the reference has no time alone
        (9e-6, None, 6e-6),
    ],
)
def test_calls_that_overlap_take_their_time_alone(
    serial_s: float, reference_serial_s: float | None, late_s: float
) -> None:
    assert overlapped_s(3e-6, serial_s, 9e-6, reference_serial_s) == pytest.approx(late_s)


def test_on_several_streams_each_difference_is_time() -> None:
    assert overlapped_s(5e-5, 5.3e-5, 6e-5, 6e-5) == 0.0, "noise, of calls that cannot overlap"
    assert overlapped_s(5e-5, 5.3e-5, 6e-5, 6e-5, has_side_streams=True) == pytest.approx(3e-6)
    assert overlapped_s(5e-5, 4.9e-5, 6e-5, 6e-5, has_side_streams=True) == 0.0


@pytest.mark.parametrize(
    ("quiet_us", "alone_us", "beside_us", "found_us"),
    [
        (40.0, 37.0, 40.0, (40.0, 37.0)),
        (40.0, None, 41.0, (40.0, None)),
        (46.7, 37.1, 40.5, (40.5, 37.1)),  # what fresh inputs spare is what they spare beside a candidate
        (46.7, 45.0, 40.5, (40.5, 40.5)),  # a slower place of its tensors is no time of a call alone
        (35.0, 36.0, 26.7, (26.7, 27.7)),
        (35.0, 36.0, 60.0, (35.0, 36.0)),  # slowed beside a candidate
    ],
)
def test_the_references_two_times_are_those_of_one_place(
    quiet_us: float, alone_us: float | None, beside_us: float, found_us: tuple[float, float | None]
) -> None:
    assert beside_candidate(quiet_us, alone_us, beside_us) == pytest.approx(found_us)


@pytest.mark.parametrize(
    ("reference_serial_s", "read_s", "late_s"),
    [
        (1.45e-4, 2e-5, 1e-5),  # fresh inputs spare both 5 µs
        (1.2e-4, 2e-5, 1.5e-5),  # no more than the cache is faster by
        (1.6e-4, 2e-5, 0.0),  # a call alone takes 10 µs longer
    ],
)
def test_fresh_inputs_spare_calls_on_several_streams_what_they_spare_the_reference(
    reference_serial_s: float, read_s: float, late_s: float
) -> None:
    found = overlapped_s(4.7e-5, 5.2e-5, 1.5e-4, reference_serial_s, has_side_streams=True, read_s=read_s)
    assert found == pytest.approx(late_s)
    host = overlapped_s(4.7e-5, 5.2e-5, 1.5e-4, 1.45e-4, gated=False, has_side_streams=True, read_s=read_s)
    assert host == pytest.approx(5e-6), "the host's time is spared nothing"


@pytest.mark.parametrize(
    ("serial_s", "reference_serial_s", "late_s"),
    [
        (6.2e-5, 4.5e-6, 0.0),  # fresh inputs spare the host nothing
        (6.2e-5, 1.1e-5, 0.0),
        (9e-5, 9e-6, 3e-5),
        (9e-5, 1.1e-5, 2.8e-5),
    ],
)
def test_so_do_calls_with_the_hosts_time(serial_s: float, reference_serial_s: float, late_s: float) -> None:
    assert overlapped_s(6e-5, serial_s, 9e-6, reference_serial_s, gated=False) == pytest.approx(late_s)
