"""Counts at two sizes give those at a third."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.cost.extrapolation import extend, extrapolate, with_full_grids, with_least_work, with_traffic
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


def test_one_run_alone_is_extended_by_rows_and_by_programs() -> None:
    counted = Launch(
        kernel="k", programs=4, dram_bytes=100, given_bytes=60, written_bytes=40, again_bytes=8, l2_bytes=200,
        operations={"fp32": 10}, most_accesses=3, largest_index=50,
    )  # fmt: skip
    (found,) = extend([counted], 16, 160, [Launch(kernel="k", programs=20)], [600])
    assert (found.programs, found.written_bytes, found.again_bytes, found.largest_index) == (20, 400, 80, 500)
    assert (found.dram_bytes, found.given_bytes) == (1000, 600), "inputs grow with the rows"
    assert (found.l2_bytes, found.operations, found.most_accesses) == (1000, {"fp32": 50}, 3)
    (weights,) = extend([counted], 16, 160, [Launch(kernel="k", programs=20)], [60])
    assert (weights.dram_bytes, weights.given_bytes) == (460, 60), "weights do not"


def test_one_run_of_a_kernel_in_proportion_says_what_two_say() -> None:
    def run(rows: int) -> Launch:
        return Launch(kernel="k", programs=rows, dram_bytes=8 * rows, given_bytes=4 * rows, written_bytes=4 * rows,
                      l2_bytes=9 * rows, operations={"fp32": 2 * rows})  # fmt: skip

    (two,) = extrapolate([run(8)], [run(16)], 8, 16, 400, [run(400)], [1600])
    (one,) = extend([run(16)], 16, 400, [run(400)], [1600])
    assert one == two == run(400)


def test_rows_that_fill_a_sector_do_not_meet_for_ever() -> None:
    """Each row has an address of its own: four rows meet in a sector of eight, and no more than eight ever do."""
    small, large = (Launch(kernel="k", programs=m, contention=32.0 * m, same_address=32.0) for m in (2, 4))
    (own,) = extrapolate([small], [large], 2, 4, 4096)
    assert own.contention == 8 * 32.0
    small, large = (Launch(kernel="k", programs=m, contention=32.0 * m, same_address=32.0 * m) for m in (2, 4))
    (shared,) = extrapolate([small], [large], 2, 4, 4096)
    assert shared.contention == 32.0 * 4096


def test_traffic_of_another_run_keeps_programs_and_grid() -> None:
    known = launch(100, 1e6, 1e5).model_copy(update={"grid": (100, 1, 1)})
    (found,) = with_traffic([known], [launch(7, 5e6, 2e5)])
    assert (found.programs, found.grid) == (100, (100, 1, 1))
    assert (found.dram_bytes, found.l2_bytes, found.operations) == (5e6, 5e6, {"fp32": 2e5})


def test_least_work_raises_reads_and_operations_and_lowers_none() -> None:
    (raised,) = with_least_work([launch(4, 1e6, 1e5)], [launch(4, 5e5, 1e4)], 4.0)
    assert (raised.dram_bytes, raised.l2_bytes, raised.operations) == (1e6, 2e6, {"fp32": 1e5})
