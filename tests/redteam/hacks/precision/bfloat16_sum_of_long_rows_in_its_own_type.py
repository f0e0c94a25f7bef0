"""bfloat16 sum of long rows in its own type

expect: refused
"""

import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return x.sum(-1)


def get_inputs():
    return [torch.rand(256, 16384).to(torch.bfloat16)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import triton
import triton.language as tl


@triton.jit
def k(x, o, N: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, N)
    tl.store(o + r, tl.sum(tl.load(x + r * N + i)))


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        o = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        k[(x.shape[0],)](x, o, N=16384, num_warps=1)
        return o
