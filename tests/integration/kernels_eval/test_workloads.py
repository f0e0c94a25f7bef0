"""One kernel at several workloads of a problem, judged."""

from kernels_eval import Judge, Problem, Status

PROBLEM = """
import torch
import torch.nn as nn

rows, columns, dtype = 64, 64, torch.float32
WORKLOADS = [{"columns": 32}, {"columns": 100}, {"dtype": "torch.float16"}]

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0

def get_inputs():
    return [torch.randn(rows, columns).to(dtype)]

def get_init_inputs():
    return []
"""
KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(out_ptr + i, tl.maximum(x, 0.0) * 2.0, mask=i < n)

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        kernel[(triton.cdiv(n, 256),)](x, out, n, BLOCK=256)
        return out
"""
NARROW = KERNEL.replace("n = x.numel()", "n = x.shape[0] * min(x.shape[1], 64)")


def test_a_kernel_is_right_if_it_is_at_every_workload(judge: Judge) -> None:
    verdict = judge.evaluate(Problem(problem_id="p", source=PROBLEM), KERNEL)
    assert verdict.correct, verdict.error_message
    assert [cell.workload for cell in verdict.cells] == ["columns=32", "columns=100", "dtype=torch.float16"]
    assert all(cell.status is Status.CORRECT for cell in verdict.cells)
    speedups = [cell.speedup or 0.0 for cell in verdict.cells]
    assert min(speedups) <= (verdict.speedup or 0.0) <= max(speedups)


def test_a_kernel_for_one_shape_is_wrong_at_another(judge: Judge) -> None:
    verdict = judge.evaluate(Problem(problem_id="p", source=PROBLEM), NARROW)
    assert not verdict.correct
    assert (verdict.error_message or "").startswith("at columns=100: ")
    assert [cell.status is Status.CORRECT for cell in verdict.cells] == [True, False, True]
