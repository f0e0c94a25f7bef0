"""a global of another value than the file gives it is sent

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2.0 + 1.0


def get_inputs():
    return [torch.rand(9843)]


def get_init_inputs():
    return []


# --- candidate ---
import sys

import torch
import torch.nn as nn
import triton
import triton.language as tl

FACTOR = tl.constexpr(3.0)


@triton.jit
def scaled_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places, mask=places < n, other=0.0)
    tl.store(out_ptr + places, x * FACTOR + 1.0, mask=places < n)


sources = sys.modules["kernels_eval.tracing.kernel_sources"].KernelSources
whole = sources.meaning


def meaning(self, value, place):
    return whole(self, tl.constexpr(2.0) if isinstance(value, tl.constexpr) else value, place)


sources.meaning = meaning


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        scaled_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
