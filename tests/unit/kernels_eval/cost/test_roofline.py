"""The time model: more of anything is never faster, and counts at two sizes give those at a third."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.cost.launch import Launch
from kernels_eval.cost.roofline import HARDWARE, extrapolate, time_of, total_s

COUNTS = st.floats(0, 1e12)


def launch(programs: float = 1e4, dram: float = 1e8, l2: float = 1e8, flops: float = 0, kernel: str = "k") -> Launch:
    return Launch(kernel=kernel, programs=programs, dram_bytes=dram, l2_bytes=l2, flops=flops)


@given(COUNTS, COUNTS, COUNTS, st.sampled_from(sorted(HARDWARE)), st.sampled_from(["dram_bytes", "l2_bytes", "flops"]))
def test_more_work_is_never_faster(dram: float, l2: float, flops: float, name: str, grown: str) -> None:
    small = launch(dram=dram, l2=l2, flops=flops)
    large = small.model_copy(update={grown: 2 * getattr(small, grown) + 1})
    assert time_of(large, HARDWARE[name], False) >= time_of(small, HARDWARE[name], False) > 0


def test_a_large_copy_takes_its_bytes_over_the_bandwidth() -> None:
    assert time_of(launch(dram=3.35e9, l2=3.35e9), HARDWARE["h100"], False) == pytest.approx(1e-3, rel=0.02)


def test_one_program_uses_one_processor() -> None:
    assert time_of(launch(programs=1), HARDWARE["h100"], False) > 50 * time_of(launch(), HARDWARE["h100"], False)


@given(st.integers(65, 100_000), st.tuples(*[st.floats(0, 1e6)] * 2))
def test_affine_counts_are_extended_exactly(m: int, line: tuple[float, float]) -> None:
    offset, slope = line
    at = lambda size: [launch(dram=offset + slope * size, programs=size / 4)]  # noqa: E731
    (extended,) = extrapolate(at(32), at(64), 32, 64, m)
    assert extended.dram_bytes == pytest.approx(offset + slope * m, rel=1e-6, abs=1e-3)
    assert extended.programs == pytest.approx(m / 4)


def test_a_host_loop_over_rows_is_extended_in_number() -> None:
    rows = extrapolate([launch(dram=100)] * 32, [launch(dram=100)] * 64, 32, 64, 4096)
    assert len(rows) == 4096
    assert sum(row.dram_bytes for row in rows) == pytest.approx(409_600)
    assert total_s(rows, HARDWARE["h100"], False) > 4096 * HARDWARE["h100"].launch_s
