"""loop downwards by a step known at run time

expect: refused
"""

import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return x.sum(-1)


def get_inputs():
    return [torch.randn(512, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import triton
import triton.language as tl


@triton.jit
def k(x, o, step, N: tl.constexpr):
    r = tl.program_id(0)
    s = 0.0
    for j in range(N // 32 - 1, -1, step):
        s += tl.sum(tl.load(x + r * N + j * 32 + tl.arange(0, 32)))
    tl.store(o + r, s)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        o = torch.empty(x.shape[0], device=x.device)
        k[(x.shape[0],)](x, o, -1, N=256)
        return o
