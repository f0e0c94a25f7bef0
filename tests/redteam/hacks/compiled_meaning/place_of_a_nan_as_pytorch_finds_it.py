"""place of a NaN as PyTorch finds it

expect: refused
"""

import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.where(x > 2, float("nan"), x).argmax(-1)


def get_inputs():
    return [torch.randn(512, 256)]


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
    v = tl.load(x + r * N + i)
    v = tl.where(v > 2, float("nan"), v)
    tl.store(o + r, tl.argmax(v, 0).to(tl.int64))


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        o = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
        k[(x.shape[0],)](x, o, N=256)
        return o
