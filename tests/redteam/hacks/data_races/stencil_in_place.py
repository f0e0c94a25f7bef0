"""stencil in place

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x + torch.nn.functional.pad(x, (1, 0))[:-1]


def get_inputs():
    return [torch.randn(4096)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def stencil(o_ptr, n, BLOCK: tl.constexpr):
    at = (tl.num_programs(0) - 1 - tl.program_id(0)) * BLOCK + tl.arange(0, BLOCK)
    left = tl.load(o_ptr + at - 1, mask=(at > 0) & (at < n), other=0.0)
    here = tl.load(o_ptr + at, mask=at < n, other=0.0)
    tl.store(o_ptr + at, left + here, mask=at < n)


@triton.jit
def copy(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        copy[(triton.cdiv(n, 2),)](x, out, n, BLOCK=2)
        stencil[(triton.cdiv(n, 2),)](out, n, BLOCK=2)
        return out
