"""a kernel named for a profiler

expect: correct
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.silu(x) * 1.5


def get_inputs():
    return [torch.randn(48, 100)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, y_ptr, n, s, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    v = tl.load(x_ptr + o, mask=m)
    tl.store(y_ptr + o, v * tl.sigmoid(v) * s, mask=m)


def cdiv(a, b):
    return (a + b - 1) // b


class ModelNew(nn.Module):
    def forward(self, x):
        with torch.profiler.record_function("silu"), torch.cuda.nvtx.range("x"):
            y = torch.empty_like(x)
            k[(cdiv(x.numel(), 256),)](x, y, x.numel(), 1.5, 256)
        return y
