"""Rows of each format, converted, go through the judge: what their kernel computes is compared with their module."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from kernels_eval import Judge, JudgeConfig, Problem, Status, Verdict
from kernels_eval.problem import EXAMPLE_KERNEL, EXAMPLE_PROBLEM
from tasks.problems.pair_formats.pair import Pair
from tasks.problems.pairs import load_pairs

PYTHON = """import torch
import torch.nn as nn


class ScaledRelu(nn.Module):

    def __init__(self, scale, shift=0.0, inplace=False):
        super(ScaledRelu, self).__init__()
        self.scale = scale

    def forward(self, x):
        return torch.relu(x) * self.scale


def get_inputs():
    return [torch.rand([64, 128])]


def get_init_inputs():
    return [[], {'scale': 3.0, 'inplace': True}]
"""
TRITON = """import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scaled_relu(x_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(x, 0.0) * scale, mask=mask)


class ScaledReluNew(nn.Module):

    def __init__(self, scale, shift=0.0, inplace=False):
        super(ScaledReluNew, self).__init__()
        self.scale = scale

    def forward(self, x):
        out = torch.empty_like(x)
        scaled_relu[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), self.scale, BLOCK=256)
        return out
"""


def judged(pairs: Sequence[Pair]) -> list[Verdict]:
    with Judge(JudgeConfig(workers=1, compile="never", device="cpu")) as judge:
        return judge.evaluate_many(
            [(Problem(problem_id=pair.pair_id, source=pair.problem_source), pair.kernel_source) for pair in pairs]
        )


def test_a_converted_row_is_judged_for_what_it_computes(tmp_path: Path):
    path = tmp_path / "pairs.jsonl"
    wrong = TRITON.replace("* scale, mask", "+ scale, mask")
    rows = [{"python_code": PYTHON, "triton_code": triton, "entry_point": "ScaledRelu"} for triton in (TRITON, wrong)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    verdicts = judged(load_pairs(path))
    assert [verdict.status for verdict in verdicts] == [Status.CORRECT, Status.INCORRECT], verdicts


def test_input_and_output_are_judged_for_what_the_output_computes(tmp_path: Path):
    wrong = EXAMPLE_KERNEL.replace("* 2.0", "* 3.0")
    rows = [
        {"input": f"Write a kernel:\n```python{EXAMPLE_PROBLEM}```", "output": f"```python{EXAMPLE_KERNEL}```"},
        {"input": {"problem": EXAMPLE_PROBLEM, "kernel": EXAMPLE_KERNEL, "issues": ["slow"]}, "output": wrong},
    ]
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps(rows))
    first, answer = load_pairs(path)
    assert (first.earlier_source, answer.earlier_source) == (None, EXAMPLE_KERNEL)
    verdicts = judged([first, answer])
    assert [verdict.status for verdict in verdicts] == [Status.CORRECT, Status.INCORRECT], verdicts


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_row_of_the_cuda_archive_compiles():
    """Without a GPU nothing of it runs: the verdict says so, and has what the compiler says of its kernel."""
    pair = load_pairs(Path("tests/fixtures/cuda_archive/rows.jsonl"))[0]
    broken = pair.kernel_source.replace("tanhf(", "undefined(")
    problem = Problem(problem_id=pair.pair_id, source=pair.problem_source)
    config = JudgeConfig(workers=1, device="cpu", backend="cuda", compile_timeout_s=60.0, targets=("cuda:90",))
    with Judge(config) as judge:
        verdict, refused = judge.evaluate_many([(problem, pair.kernel_source), (problem, broken)])
    assert (verdict.status, verdict.error_category) == (Status.RUNTIME_ERROR, "not_run_without_gpu"), verdict
    assert verdict.compiled
    assert [used.architecture for used in verdict.resources] == ["cuda:90"]
    assert all("bias_tanh_scale_kernel" in used.kernel for used in verdict.resources)
    assert (refused.status, refused.error_category) == (Status.COMPILE_ERROR, "nvcc_compile")
    assert refused.error_message is not None
    assert 'identifier "undefined" is undefined' in refused.error_message
