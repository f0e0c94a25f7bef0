"""a zero-dimensional tensor as an input, read by the kernel

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, t):
        return x / t


def get_inputs():
    return [torch.randn(200, 50), torch.rand(()) + 0.5]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def divide_kernel(X, T, O, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    t = tl.load(T)
    tl.store(O + i, tl.load(X + i, mask=i < n) / t, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x, t):
        out = torch.empty_like(x)
        divide_kernel[(triton.cdiv(x.numel(), 512),)](x, t, out, x.numel(), BLOCK=512)
        return out
