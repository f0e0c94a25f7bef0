"""Times at a problem's own sizes of kernels that were counted at cut ones, beside an H100's."""

import pytest

from kernels_eval import Judge

ROWS, COLUMNS = 128, 4096
PROBLEM = f"""
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        for _ in range(32):
            x = torch.exp(-x * x) * 0.5 + x * 0.25
        return x

M, N = {ROWS}, {COLUMNS}

def get_inputs():
    return [torch.randn(M, N)]

def get_init_inputs():
    return []
"""
KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, out_ptr, M, N, BLOCK: tl.constexpr, SIZE: tl.constexpr):
    {before}
    for row in {rows}:
        for start in range(0, N, {size}):
            columns = start + tl.arange(0, {size})
            x = tl.load(x_ptr + row * N + columns, mask=columns < N, other=0.0)
            for _ in range(32):
                x = tl.exp(0.0 - x * x) * 0.5 + x * 0.25
            tl.store(out_ptr + row * N + columns, x, mask=columns < N)

class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.empty_like(x)
        kernel[({programs},)](x, out, M, N, BLOCK=triton.next_power_of_2(N), SIZE=64, num_warps={warps})
        return out
"""
SHARED = "range(tl.program_id(0), M, tl.num_programs(0))"
CHUNKS = "range(tl.program_id(0) * 16, min(tl.program_id(0) * 16 + 16, M))"
MEASURED_US = {1: 2517.0, 8: 319.8, 32: 84.8, 66: 45.2, 264: 26.5, 2112: 26.2}
"""By the number of programs (docs/lab/2026-11-26-42.json, its figure)."""


def estimated_us(judge: Judge, programs: int, rows: str = SHARED, size: str = "BLOCK", **others: str) -> float:
    """Return the estimated time of so many programs, each with blocks of `size`."""
    values = {"before": "pass", "warps": "4", **others}
    kernel = KERNEL.format(programs=programs, rows=rows, size=size, **values)
    verdict = judge.submit(PROBLEM, kernel, settings={"full_size_share": 0.0}).result()
    assert verdict.correct, verdict.error_message
    assert verdict.judged_at is not None
    assert verdict.judged_at.endswith(f"of {ROWS} × {COLUMNS}")
    assert verdict.candidate_ms is not None
    return 1e3 * verdict.candidate_ms


@pytest.mark.parametrize("programs", MEASURED_US)
def test_programs_that_share_rows_take_about_as_long_as_on_a_gpu(judge: Judge, programs: int) -> None:
    assert estimated_us(judge, programs) / MEASURED_US[programs] == pytest.approx(1.2, abs=0.2)


def test_programs_that_have_no_rows_are_idle(judge: Judge) -> None:
    """Sixteen rows each are eight programs' work, however many are launched."""
    assert estimated_us(judge, 264, CHUNKS) == pytest.approx(estimated_us(judge, 8), rel=0.1)


@pytest.mark.parametrize("warps", ["8", "32"])
def test_threads_that_cut_rows_do_not_fill_are_not_idle(judge: Judge, warps: str) -> None:
    assert estimated_us(judge, 128, warps=warps) < 1.05 * estimated_us(judge, 128)


def test_a_block_that_grows_hides_no_work_of_blocks_that_do_not(judge: Judge) -> None:
    """Threads repeat the elements of small blocks at all sizes."""
    small = estimated_us(judge, 128, size="64", warps="32")
    assert small > 8 * estimated_us(judge, 128, warps="32")
    for size in ("64", "SIZE", "(2 * 32)"):
        beside = estimated_us(judge, 128, size=size, warps="32", before="unused = tl.arange(0, BLOCK)")
        assert beside >= 0.98 * small
