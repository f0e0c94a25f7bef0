"""recurrence that reads the last row of the program before

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, 0)


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
def scan(x_ptr, o_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + c, mask=c < N, other=0.0)
    before = tl.load(o_ptr + (row - 1) * N + c, mask=(c < N) & (row > 0), other=0.0)
    tl.store(o_ptr + row * N + c, before + x, mask=c < N)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        scan[(x.shape[0],)](x, out, x.shape[1], BLOCK=64)
        return out
