"""The time model: more of anything is never faster; rates of the units show where a kernel is bound by one."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.cost.hardware import HARDWARE
from kernels_eval.cost.launch import Launch, Operation
from kernels_eval.cost.occupancy import Usage
from kernels_eval.cost.roofline import time_of, total_s

H100 = HARDWARE["h100"]
UNITS: tuple[Operation, ...] = tuple(H100.lanes)
COUNTS = st.floats(0, 1e12)
LAUNCHES = st.builds(
    Launch,
    kernel=st.just("k"),
    programs=st.integers(1, 10**6),
    busy_share=st.floats(0.01, 1),
    dram_bytes=COUNTS,
    l2_bytes=COUNTS,
    written_bytes=st.just(0.0) | COUNTS,
    again_bytes=st.just(0.0) | COUNTS,
    reread_bytes=st.just(0.0) | COUNTS,
    reread_reach=st.just(0.0) | COUNTS,
    most_accesses=st.floats(0, 1e4),
    most_reductions=st.floats(0, 1e4),
    operations=st.dictionaries(st.sampled_from([*UNITS, "access", "reduction"]), COUNTS),
    options=st.fixed_dictionaries({"num_warps": st.sampled_from([1, 2, 4, 8, 16, 32])}),
)


def launch(programs: float = 1e4, dram: float = 1e8, **operations: float) -> Launch:
    return Launch(
        kernel="k",
        programs=programs,
        dram_bytes=dram,
        l2_bytes=dram,
        operations={**operations},  # pyright: ignore
    )


@given(
    LAUNCHES,
    st.sampled_from(sorted(HARDWARE)),
    st.sampled_from(["dram_bytes", "l2_bytes", "reread_bytes", "reread_reach"]),
    COUNTS,
)
def test_more_traffic_is_never_faster(small: Launch, name: str, grown: str, more: float) -> None:
    large = small.model_copy(update={grown: getattr(small, grown) + more})
    assert time_of(large, HARDWARE[name]) >= time_of(small, HARDWARE[name]) > 0


@given(LAUNCHES, st.sampled_from(sorted(HARDWARE)), st.sampled_from([*UNITS, "access", "reduction"]), COUNTS)
def test_more_operations_are_never_faster(small: Launch, name: str, unit: Operation, more: float) -> None:
    grown = {**small.operations, unit: small.operations.get(unit, 0) + more}
    assert time_of(small.model_copy(update={"operations": grown}), HARDWARE[name]) >= time_of(small, HARDWARE[name])


@given(LAUNCHES, st.sampled_from(sorted(HARDWARE)), st.integers(1, 10**6))
def test_programs_without_work_are_never_faster(small: Launch, name: str, idle: int) -> None:
    programs = small.programs + idle
    large = small.model_copy(update={"programs": programs, "busy_share": small.busy_share * small.programs / programs})
    assert time_of(large, HARDWARE[name]) >= time_of(small, HARDWARE[name]) * (1 - 1e-9)


@given(LAUNCHES, st.integers(16, 255), st.integers(0, 200_000), st.integers(0, 4096))
def test_spills_and_shared_memory_are_never_faster(small: Launch, registers: int, shared: int, spilled: int) -> None:
    lean, fat = Usage(registers, 0, 0), Usage(registers, shared, spilled)
    assert total_s([small], H100, [fat]) >= total_s([small], H100, [lean])


def test_a_large_copy_takes_its_bytes_over_the_bandwidth() -> None:
    assert time_of(launch(dram=33.5e9), H100) == pytest.approx(10e-3, rel=0.1)


def test_one_program_uses_one_processor() -> None:
    assert time_of(launch(programs=1, fp32=1e9), H100) > 50 * time_of(launch(fp32=1e9), H100)


@pytest.mark.parametrize(
    ("slow", "fast", "ratio"),
    [("sfu", "fp32", 8), ("dot_tf32", "dot_half", 2), ("dot_half", "dot_byte", 2), ("dot_fp32", "dot_half", 14.8)],
)
def test_units_differ_by_their_rates(slow: str, fast: str, ratio: float) -> None:
    work = 1e15
    times = [time_of(launch(dram=0, **{unit: work}), H100) for unit in (slow, fast)]
    assert times[0] / times[1] == pytest.approx(ratio, rel=0.02)


@given(st.lists(st.floats(0, 1e12), min_size=3, max_size=3))
def test_sums_are_rounded_once(counts: list[float]) -> None:
    """In every version of Python: `sum` rounds each step before 3.12, and digests of rewards would differ."""
    units: tuple[Operation, ...] = ("dot_half", "dot_tf32", "dot_byte")
    exact = float(sum(map(Fraction, counts)))
    assert launch(**dict(zip(units, counts, strict=True))).matrix_flops == exact


@pytest.mark.parametrize(("row_bytes", "measured"), [(64 << 10, 1.32), (256 << 10, 1.81), (1 << 20, 1.85)])
@pytest.mark.parametrize("warps", [4, 8])
def test_what_is_read_again_costs_as_much_as_does_not_fit_into_the_cache(
    row_bytes: int, measured: float, warps: int
) -> None:
    """An H200 takes so many times as long for rows that 8 warps read twice (1.06 for rows of 16 KB)."""
    assert _twice_over_once(row_bytes, warps) == pytest.approx(measured, rel=0.1)
    assert _twice_over_once(16 << 10, warps) == 1.0


@pytest.mark.parametrize("row_bytes", [64 << 10, 256 << 10, 1 << 20])
@pytest.mark.parametrize("warps", [16, 32])
def test_more_warps_keep_no_more_in_the_cache(row_bytes: int, warps: int) -> None:
    """A softmax over rows of 256 KB, which reads them twice, takes an H200 as long with 32 warps as with 8."""
    assert _twice_over_once(row_bytes, warps) == pytest.approx(_twice_over_once(row_bytes, 8), rel=0.01)


def _twice_over_once(row_bytes: float, warps: int) -> float:
    """Return the time for rows that are read twice over that for rows read once; 256 MB in all."""
    once = launch(programs=2**28 / row_bytes, dram=2**28).model_copy(update={"options": {"num_warps": warps}})
    twice = once.model_copy(update={"reread_bytes": 2**28, "reread_reach": row_bytes})
    return time_of(twice, H100) / time_of(once, H100)
