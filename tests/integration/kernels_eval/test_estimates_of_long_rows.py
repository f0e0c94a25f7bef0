"""Times of programs that each read a long row in a loop, beside an H100's: each turn waits for the memory."""

import pytest

from kernels_eval import Judge

PROBLEM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x.sum(1)

M, N = 128, 65536

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
def kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    some = tl.zeros((16, 16), tl.float16)
    {loop}
        x = tl.load(x_ptr + row * N + start + tl.arange(0, BLOCK), mask=start + tl.arange(0, BLOCK) < N, other=0.0)
        total += tl.sum(x, 0)
        {after}
    tl.store(out_ptr + row, total + tl.sum(tl.sum(some.to(tl.float32), 0), 0))

class ModelNew(nn.Module):
    def forward(self, x):
        M, N = x.shape
        out = torch.empty(M, device=x.device)
        kernel[(M,)](x, out, N, BLOCK={block})
        return out
"""
FOR = "for start in range(0, N, BLOCK):"
WHILE = "start = 0\n    while start < N:"
MEASURED_US = {256: 155.7, 1024: 55.5}
"""By the block's size (docs/lab/2026-11-26-42.json, its figure)."""


def estimated_us(judge: Judge, block: int, loop: str = FOR, after: str = "pass") -> float:
    """Return the estimated time with blocks of this size."""
    kernel = KERNEL.format(loop=loop, after=after, block=block)
    verdict = judge.submit(PROBLEM, kernel, settings={"full_size_share": 0.0}).result()
    assert verdict.correct, verdict.error_message
    assert verdict.candidate_ms is not None
    return 1e3 * verdict.candidate_ms


@pytest.mark.parametrize("block", MEASURED_US)
def test_long_rows_take_about_as_long_as_on_a_gpu(judge: Judge, block: int) -> None:
    assert estimated_us(judge, block) / MEASURED_US[block] == pytest.approx(1.0, abs=0.25)


@pytest.mark.parametrize(
    ("loop", "after"),
    [
        (WHILE, "start += BLOCK"),
        (FOR, "some += tl.dot(some, some).to(tl.float16)"),
        (FOR, "shown = tl.dot(tl.reshape(x, (32, 32)), tl.zeros((32, 32), tl.float32))"),
        (FOR, "total += 0.0 * tl.load(x_ptr + row * N)"),
    ],
    ids=["another loop", "a product of something else", "a product for show", "a second load"],
)
def test_no_turn_of_a_loop_hides_its_wait(judge: Judge, loop: str, after: str) -> None:
    assert estimated_us(judge, 1024, loop, after) >= 0.98 * estimated_us(judge, 1024)
