"""rows added to their reverse in place, loaded as they are stored last

expect: refused
"""

import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return x + x.flip(-1)


def get_inputs():
    return [torch.randn(512, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import triton
import triton.language as tl


@triton.jit
def cp(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) * 1.0, mask=i < n)


@triton.jit
def add(o, N: tl.constexpr):
    p = o + tl.program_id(0) * N
    i = tl.arange(0, N)
    b = tl.load(p + N - 1 - i)
    a = tl.load(p + i)
    tl.store(p + i, b + a)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        o = torch.empty_like(x)
        cp[(triton.cdiv(x.numel(), 1024),)](x, o, x.numel(), B=1024)
        add[(x.shape[0],)](o, N=256)
        return o
