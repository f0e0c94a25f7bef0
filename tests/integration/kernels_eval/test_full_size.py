"""Correct kernels run once more at the problem's own size, or at the largest that the budget allows."""

from typing import Any

import pytest

from kernels_eval import Judge, JudgeConfig, Status, Verdict

PROBLEM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return torch.exp(x) + 1.0

def get_inputs():
    return [torch.randn(512, 32)]

def get_init_inputs():
    return []
"""
KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, out_ptr, D, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + INDEX * D + cols, mask=cols < D, other=0.0)
    tl.store(out_ptr + row * D + cols, tl.exp(x) + 1.0, mask=cols < D)

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=32)
        return out
"""
HONEST = KERNEL.replace("INDEX", "row")
WRONG = KERNEL.replace("INDEX", "(row % 300)")
SLOW = KERNEL.replace("INDEX", "row").replace(
    "    cols = ", "    turns = row // 500 * 100000000\n    for _ in range(turns):\n        row += 0\n    cols = "
)


def judged(judge: Judge, kernel: str, share: float) -> Verdict:
    settings: dict[str, Any] = {"full_size_share": share}
    return judge.submit(PROBLEM, kernel, settings=settings).result()


def test_the_share_decides_what_is_executed(judge: Judge) -> None:
    small, full = judged(judge, HONEST, 0.0), judged(judge, HONEST, 1.0)
    assert small.correct
    assert full.correct
    assert (small.executed_size, small.full_size) == (16, 512)
    assert (full.executed_size, full.full_size) == (512, 512)


def test_a_kernel_that_is_wrong_at_the_full_size_alone_is_found_there(judge: Judge) -> None:
    assert judged(judge, WRONG, 0.0).correct
    verdict = judged(judge, WRONG, 1.0)
    assert (verdict.status, verdict.error_category) == (Status.INCORRECT, "wrong_values")
    assert verdict.error_message is not None
    assert verdict.error_message.startswith("output[300, 0]")
    assert verdict.executed_size == 512


def test_a_budget_that_is_too_small_for_the_full_size_leaves_less() -> None:
    config = JudgeConfig(workers=1, compile="never", full_size_share=1.0, full_size_s=0.0001)
    with Judge(config) as judge:
        verdict = judge.evaluate(PROBLEM, HONEST)
    assert verdict.correct
    assert verdict.executed_size == 16


@pytest.mark.long
def test_a_kernel_that_takes_far_longer_at_the_full_size_is_refused() -> None:
    with Judge(JudgeConfig(workers=1, compile="never", full_size_share=1.0, full_size_s=1.0)) as judge:
        verdict = judge.evaluate(PROBLEM, SLOW)
    assert (verdict.status, verdict.executed_size) == (Status.TIMEOUT, 512)


def test_what_is_paid_for_its_speed_has_been_run_at_the_full_size(judge: Judge) -> None:
    honest, wrong = judged(judge, HONEST, 1e-12), judged(judge, WRONG, 1e-12)
    assert honest.speedup is not None
    assert honest.speedup > 1.0
    assert honest.executed_size == honest.full_size
    assert (wrong.status, wrong.executed_size) == (Status.INCORRECT, 512)


def test_a_slow_kernel_is_run_there_only_if_it_is_drawn() -> None:
    with Judge(JudgeConfig(workers=1, compile="never", full_size_share=1e-12, full_size_speedup=100.0)) as judge:
        assert judge.evaluate(PROBLEM, HONEST).executed_size == 16


SHARED = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, out_ptr, M, D, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), M, tl.num_programs(0)):
        x = tl.load(x_ptr + row * D + cols, mask=cols < D, other=0.0)
        tl.store(out_ptr + row * D + cols, tl.exp(x) + 1.0, mask=cols < D)

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[(132,)](x, out, x.shape[0], x.shape[1], BLOCK=8192)
        return out
"""


def test_rows_that_programs_share_are_run_as_far_as_the_memory_allows() -> None:
    """If the text tells that all rows are taken, some of them prove it; else the full size alone is conclusive."""
    problem = PROBLEM.replace("512, 32", "4096, 8192")
    with Judge(JudgeConfig(workers=1, compile="never", memory_mb=512)) as judge:
        shared = judge.evaluate(problem, SHARED)
        some = [
            judge.evaluate(problem, SHARED.replace("program_id(0), M,", f"program_id(0), {end},"))
            for end in ("2048", "tl.minimum(M, 2048)")
        ]
    assert (shared.status, shared.executed_size, shared.full_size) == (Status.CORRECT, 1024, 4096), shared
    assert not any(verdict.correct for verdict in some), some
