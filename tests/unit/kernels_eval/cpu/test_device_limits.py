"""A candidate whose launches no device can run gets a verdict; a limit of one device counts where it is a target."""

from kernels_eval.cost.launch import Launch
from kernels_eval.cpu.device_limits import limit_failure
from kernels_eval.verdict import Status


def launch(rows: int = 1, warps: int = 4, index: float = 0) -> Launch:
    return Launch(kernel="k", programs=rows, grid=(1, rows, 1), options={"num_warps": warps}, largest_index=index)


def test_launches_within_the_limits_pass() -> None:
    assert limit_failure([launch(), launch(65535)], ("cuda:90",)) is None
    assert limit_failure([], ("cuda:90",)) is None


def test_a_grid_that_is_too_large_is_refused() -> None:
    verdict = limit_failure([launch(), launch(65536)], ("cuda:90",))
    assert verdict is not None
    assert (verdict.status, verdict.error_category, verdict.compiled) == (Status.RUNTIME_ERROR, "grid_limit", True)


def test_threads_count_by_target() -> None:
    assert limit_failure([launch(warps=32)], ("cuda:90",)) is None
    verdict = limit_failure([launch(warps=32)], ("cuda:90", "hip:gfx942"))
    assert verdict is not None
    assert verdict.error_category == "thread_limit"


def test_offsets_are_looked_at_if_both_runs_have_the_same_kernels() -> None:
    sizes = [launch(index=size * 4096.0) for size in (8, 16, 2**20)]
    grown = (sizes[0], sizes[1], sizes[2])
    verdict = limit_failure([sizes[2]], ("cuda:90",), [grown])
    assert verdict is not None
    assert verdict.error_category == "offset_overflow"
    assert limit_failure([sizes[2], launch()], ("cuda:90",), [grown]) is None
