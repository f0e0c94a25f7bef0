"""flag gems style pointwise or and not

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.where((x < -1) | (x > 1), x, 0.0) + torch.where(x > 0, 0.0, 1.0)


def get_inputs():
    return [torch.randn(512, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def outside(x):
    return (x < -1.0) or (x > 1.0)


@triton.jit
def kernel(x_ptr, o_ptr, N, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    keep = c < N
    x = tl.load(x_ptr + tl.program_id(0) * N + c, mask=keep, other=0.0)
    y = tl.where(outside(x), x, 0.0) + tl.where(not (x > 0), 1.0, 0.0)
    tl.store(o_ptr + tl.program_id(0) * N + c, y, mask=keep)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=64)
        return out
