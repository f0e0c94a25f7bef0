"""Counts at two sizes give those at a third."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.cost.extrapolation import extrapolate, with_full_grids
from kernels_eval.cost.hardware import HARDWARE
from kernels_eval.cost.launch import Launch
from kernels_eval.cost.roofline import total_s


def launch(programs: float = 1, dram: float = 0, fp32: float = 0, kernel: str = "k") -> Launch:
    return Launch(kernel=kernel, programs=programs, dram_bytes=dram, l2_bytes=dram, operations={"fp32": fp32})


@given(st.integers(65, 100_000), st.tuples(*[st.floats(0, 1e6)] * 2))
def test_affine_counts_are_extended_exactly(m: int, line: tuple[float, float]) -> None:
    offset, slope = line
    at = lambda size: [launch(size / 4, offset + slope * size, 3 * (offset + slope * size))]  # noqa: E731
    (extended,) = extrapolate(at(32), at(64), 32, 64, m)
    assert extended.dram_bytes == pytest.approx(offset + slope * m, rel=1e-6, abs=1e-3)
    assert extended.operations["fp32"] == pytest.approx(3 * (offset + slope * m), rel=1e-6, abs=1e-3)
    assert extended.programs == pytest.approx(m / 4)


def test_a_host_loop_over_rows_is_extended_in_number() -> None:
    rows = extrapolate([launch(dram=100, fp32=10)] * 32, [launch(dram=100, fp32=10)] * 64, 32, 64, 4096)
    assert len(rows) == 4096
    assert sum(row.dram_bytes for row in rows) == pytest.approx(409_600)
    assert sum(row.operations["fp32"] for row in rows) == pytest.approx(40_960)
    assert total_s(rows, HARDWARE["h100"]) > 4096 * HARDWARE["h100"].launch_s


def test_grids_of_the_full_size_keep_the_extended_counts() -> None:
    estimated = [launch(100, 1e6, 1e5).model_copy(update={"busy_share": 0.5})]
    (found,) = with_full_grids(estimated, [Launch(kernel="k", programs=128, grid=(64, 2, 1))])
    assert (found.programs, found.grid) == (128, (64, 2, 1))
    assert (found.dram_bytes, found.operations, found.busy_share) == (1e6, {"fp32": 1e5}, 0.5)


def test_more_at_the_smaller_size_does_not_flatten_the_line() -> None:
    lazy = extrapolate([launch(8, 1e6, 1e6)], [launch(16, 1e6, 1e6)], 8, 16, 1600, [launch(1600)], [0])
    assert lazy[0].operations["fp32"] == pytest.approx(1e8)
    assert lazy[0].dram_bytes == pytest.approx(1e8)
