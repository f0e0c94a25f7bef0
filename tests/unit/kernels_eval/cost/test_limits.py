"""Limits of the devices: each is found where it is exceeded, by one, and not where it is reached."""

import pytest

from kernels_eval.cost.launch import Launch
from kernels_eval.cost.limits import ARCHITECTURES, limit_of_code, limit_of_index, limit_of_launch
from kernels_eval.verdict import Resources

TARGETS = ("cuda:80", "cuda:90")


def launch(grid: tuple[int, int, int] = (1, 1, 1), warps: int = 4, index: float = 0) -> Launch:
    return Launch(kernel="k", programs=1, grid=grid, options={"num_warps": warps}, largest_index=index)


@pytest.mark.parametrize(
    ("grid", "exceeded"),
    [
        ((2**31 - 1, 65535, 65535), False),
        ((2**31, 1, 1), True),
        ((1, 65536, 1), True),
        ((1, 1, 65536), True),
    ],
)
def test_grids(grid: tuple[int, int, int], exceeded: bool) -> None:
    found = limit_of_launch(launch(grid), TARGETS)
    assert (found is not None) == exceeded
    assert found is None or found.category == "grid_limit"


def test_threads_by_the_width_of_a_warp() -> None:
    assert limit_of_launch(launch(warps=32), TARGETS) is None
    assert limit_of_launch(launch(warps=16), ("hip:gfx942",)) is None
    for warps, targets in ((64, TARGETS), (32, ("cuda:90", "hip:gfx942"))):
        found = limit_of_launch(launch(warps=warps), targets)
        assert found is not None
        assert found.category == "thread_limit"
        assert "1024" in found.message


@pytest.mark.parametrize(("architecture", "most"), [("cuda:80", 166912), ("cuda:86", 101376), ("cuda:90", 232448)])
def test_shared_memory_of_each_architecture(architecture: str, most: int) -> None:
    """The sizes are those that `cudaDevAttrMaxSharedMemoryPerBlockOptin` has on these devices."""
    within, beyond = (Resources(kernel="k", architecture=architecture, shared_bytes=size) for size in (most, most + 1))
    assert limit_of_code([within]) is None
    found = limit_of_code([within, beyond])
    assert found is not None
    assert found.category == "shared_memory_limit"
    assert str(most) in found.message


@pytest.mark.parametrize(
    ("options", "programs", "target", "words"),
    [
        ({"num_ctas": 32}, 1, "cuda:90", "num_ctas=32"),
        ({"num_ctas": 16}, 1, "cuda:90", None),
        ({"num_ctas": 2}, 1, "cuda:80", "num_ctas=2"),
        ({"waves_per_eu": 2}, 1, "cuda:90", "waves_per_eu"),
        ({"waves_per_eu": 2}, 1, "hip:gfx942", None),
        ({"launch_cooperative_grid": 1, "num_warps": 32}, 264, "cuda:90", None),
        ({"launch_cooperative_grid": 1, "num_warps": 32}, 265, "cuda:90", "264 at once"),
        ({"launch_cooperative_grid": 1, "num_ctas": 2}, 1057, "cuda:90", "2112 at once"),
        ({"launch_cooperative_grid": 0, "num_warps": 32}, 265, "cuda:90", None),
    ],
)
def test_options_that_a_target_takes(options: dict[str, int], programs: int, target: str, words: str | None) -> None:
    found = limit_of_launch(Launch(kernel="k", programs=programs, options=options), (target,))  # pyright: ignore[reportArgumentType]
    assert (found is None) is (words is None)
    assert found is None or (found.category == "exception" and str(words) in found.message)


def test_an_unknown_architecture_has_no_limits() -> None:
    assert limit_of_code([Resources(kernel="k", architecture="cuda:999", shared_bytes=1 << 30)]) is None
    assert limit_of_launch(launch(warps=64), ("cuda:999",)) is None


def test_an_index_that_grows_beyond_32_bits_overflows() -> None:
    small, large, full = (launch(index=size * 4096.0) for size in (8, 16, 2**20))
    found = limit_of_index(small, large, full)
    assert found is not None
    assert found.category == "offset_overflow"
    assert limit_of_index(small, large, launch(index=2.0**31 - 1)) is None


def test_values_that_do_not_grow_are_no_offsets() -> None:
    assert limit_of_index(launch(index=1.9e9), launch(index=2.1e9), launch(index=1e14)) is None


def test_no_architecture_has_less_than_its_block_needs() -> None:
    for limits in ARCHITECTURES.values():
        assert limits.shared_bytes <= limits.processor_shared_bytes
        assert limits.block_threads <= limits.processor_warps * limits.warp_threads
