"""A slow machine gives a kernel more time, a fast one no less than was promised."""

from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.sandbox.calibration import MOST, factor_of, slowness


@given(st.floats(1e-6, 10), st.floats(1e-6, 10))
def test_the_factor_follows_the_work_within_bounds(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 1.0 <= factor_of(low) <= factor_of(high) <= MOST
    assert factor_of(1e-4) == 1.0
    assert factor_of(0.006) == 2.0


def test_the_machine_is_measured_once() -> None:
    assert slowness() == slowness()
    assert 1.0 <= slowness() <= MOST
