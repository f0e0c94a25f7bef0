"""host code that marks its range for a profiler

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(128, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(x, out, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + o, mask=o < n, other=0.0)
    tl.store(out + o, tl.maximum(v, 0.0), mask=o < n)


class ModelNew(nn.Module):
    def forward(self, x):
        torch.cuda.nvtx.range_push("relu")
        out = torch.empty_like(x)
        k[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), 256)
        torch.cuda.nvtx.range_pop()
        return out
