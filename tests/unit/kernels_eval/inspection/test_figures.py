"""Figures of a call, from counts: shares of time, of the device's rates, of what lanes and sectors were used for."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.cost.hardware import HARDWARE
from kernels_eval.cost.launch import Launch
from kernels_eval.cost.occupancy import Usage
from kernels_eval.cost.roofline import total_s
from kernels_eval.inspection.figures import Work, figures_of

H100 = HARDWARE["h100"]
COUNTS = st.floats(0, 1e12)
LAUNCHES = st.lists(
    st.builds(
        Launch,
        kernel=st.sampled_from(["a", "b"]),
        kernel_number=st.integers(-1, 2),
        programs=st.integers(1, 10**6).map(float),
        dram_bytes=COUNTS,
        l2_bytes=COUNTS,
        asked_bytes=COUNTS,
        lane_bytes=st.floats(0, 1e6),
        operations=st.dictionaries(st.sampled_from(["fp32", "dot_half", "dot_fp32", "access"]), COUNTS),
    ),
    min_size=1,
    max_size=5,
)


def own(**counts: Any) -> Launch:
    return Launch(**{"kernel": "k", "kernel_number": 0, "programs": 1e5, **counts})


@given(LAUNCHES, st.sampled_from(sorted(HARDWARE)))
def test_times_add_up_and_shares_are_shares(launches: list[Launch], name: str) -> None:
    hardware = HARDWARE[name]
    found = figures_of(launches, (), Work(bytes=1.0), hardware)
    assert found.microseconds == pytest.approx(1e6 * total_s(launches, hardware))
    assert len(found.launches) == sum(launch.kernel_number >= 0 for launch in launches)
    parts = sum(launch.share for launch in found.launches) + found.library_share
    assert parts == pytest.approx(1 - hardware.call_s / total_s(launches, hardware))
    for launch in found.launches:
        shares = (launch.share, launch.roofline_share, launch.sector_share, launch.lane_share, launch.occupancy)
        assert all(0 <= share <= 1 for share in shares)
    assert 0 <= found.tensor_share <= 1
    assert 0 < found.gaps_share <= 1


def test_a_large_copy_runs_at_the_memorys_rate() -> None:
    (launch,) = figures_of([own(dram_bytes=33.5e9, l2_bytes=33.5e9, asked_bytes=33.5e9)], (), Work(), H100).launches
    assert launch.gigabytes_per_s == pytest.approx(3350, rel=0.1)
    assert launch.roofline_share == pytest.approx(1.0, abs=0.1)
    assert (launch.bound_by, launch.sector_share, launch.registers) == ("memory", 1.0, None)


def test_strided_accesses_and_masks_show_in_their_shares() -> None:
    counts = {"dram_bytes": 32e9, "l2_bytes": 32e9, "asked_bytes": 4e9, "lane_bytes": 8e9 / 1e5}
    (launch,) = figures_of([own(**counts)], (), Work(), H100).launches
    assert launch.sector_share == pytest.approx(1 / 8)  # four bytes of each sector of 32
    assert launch.lane_share == pytest.approx(1 / 2)


def test_products_on_tensor_cores_and_beside_them() -> None:
    launches = [own(operations={"dot_half": 3e12}), own(operations={"dot_fp32": 1e12})]
    library = Launch(kernel="aten.mm", programs=1, operations={"dot_half": 9e12})
    found = figures_of([*launches, library], (), Work(matrix_flops=4e12), H100)
    assert found.computed_flops == 4e12  # the library's products are not the candidate's
    assert found.tensor_share == 0.75
    assert found.library_share > 0


def test_what_was_compiled_limits_the_occupancy() -> None:
    lean, fat = (figures_of([own()], [Usage(registers, 0, 8)], Work(), H100).launches[0] for registers in (32, 255))
    assert (lean.registers, fat.registers, fat.spill_bytes) == (32, 255, 8)
    assert fat.occupancy < lean.occupancy
    assert fat.limited_by == "registers"


def test_moved_bytes_are_compared_with_those_needed() -> None:
    assert figures_of([own(dram_bytes=300)], (), Work(bytes=100), H100).moved_share == 3.0
    assert figures_of([own(dram_bytes=300)], (), Work(), H100).moved_share == 1.0
