"""addresses that are not aligned

expect: refused
"""

import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return x[:, 1:253].contiguous().view(torch.int32) + 1


def get_inputs():
    return [torch.randint(0, 100, (512, 256), dtype=torch.int8)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import triton
import triton.language as tl


@triton.jit
def k(x, o, N: tl.constexpr):
    r = tl.program_id(0)
    i = tl.arange(0, 64)
    p = (x + r * 256 + 1).to(tl.pointer_type(tl.int32))
    v = tl.load(p + i, mask=i < 63, other=0)
    tl.store(o + r * 63 + i, v + 1, mask=i < 63)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        o = torch.empty(x.shape[0], 63, dtype=torch.int32, device=x.device)
        k[(x.shape[0],)](x, o, N=256)
        return o
