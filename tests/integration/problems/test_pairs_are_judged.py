"""A KernelBook row, converted, goes through the judge: what its kernel computes is compared with its module."""

import json

from kernels_eval import Judge, JudgeConfig, Problem, Status
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


def test_a_converted_row_is_judged_for_what_it_computes(tmp_path):
    path = tmp_path / "pairs.jsonl"
    wrong = TRITON.replace("* scale, mask", "+ scale, mask")
    rows = [{"python_code": PYTHON, "triton_code": triton, "entry_point": "ScaledRelu"} for triton in (TRITON, wrong)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with Judge(JudgeConfig(workers=1, compile="never", device="cpu")) as judge:
        verdicts = judge.evaluate_many(
            [
                (Problem(problem_id=pair.pair_id, source=pair.problem_source), pair.kernel_source)
                for pair in load_pairs(path)
            ]
        )
    assert [verdict.status for verdict in verdicts] == [Status.CORRECT, Status.INCORRECT], verdicts
