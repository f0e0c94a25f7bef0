"""Times of stores whose elements each lie in a sector of their own, beside an H100's."""

import pytest

from kernels_eval import Judge

PROBLEM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x.t().contiguous()

M, N = 8192, 2048

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
def kernel(x_ptr, out_ptr, M, N, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    n = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    mask = (m < M) & (n < N)
    x = tl.load(x_ptr + m * N + n, mask=mask, other=0.0)
    tl.store(out_ptr + n * M + m, x, mask=mask)

class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.empty((N, M), device=x.device)
        grid = (triton.cdiv(M, {rows}), triton.cdiv(N, {columns}))
        kernel[grid](x, out, M, N, ROWS={rows}, COLUMNS={columns})
        return out
"""
MEASURED_US = {(1, 256): 283.2, (32, 32): 52.2}
"""By the tile (docs/lab/2026-11-26-42.json, its figure)."""


@pytest.mark.parametrize("tile", MEASURED_US)
def test_transpositions_take_about_as_long_as_on_a_gpu(judge: Judge, tile: tuple[int, int]) -> None:
    kernel = KERNEL.format(rows=tile[0], columns=tile[1])
    verdict = judge.submit(PROBLEM, kernel, settings={"full_size_share": 0.0}).result()
    assert verdict.correct, verdict.error_message
    assert verdict.candidate_ms is not None
    assert 1 / 1.5 < 1e3 * verdict.candidate_ms / MEASURED_US[tile] < 1.5
