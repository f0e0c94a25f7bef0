"""pairs of neighbours, which lie in one warp, turned in place

expect: correct
"""

import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return x + torch.stack([-x[:, 1::2], x[:, 0::2]], -1).reshape(x.shape)


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
def turn(o, N: tl.constexpr):
    p = o + tl.program_id(0) * N
    i = tl.arange(0, N)
    a = tl.load(p + i)
    b = tl.load(p + (i ^ 1))
    tl.store(p + i, a + tl.where(i % 2 == 0, -b, b))


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        o = torch.empty_like(x)
        cp[(triton.cdiv(x.numel(), 1024),)](x, o, x.numel(), B=1024)
        turn[(x.shape[0],)](o, N=256)
        return o
