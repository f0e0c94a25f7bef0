"""atomic minimum in memory that nobody filled

expect: refused
"""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x.min(-1).values


def get_inputs():
    return [torch.randn(512, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import triton
import triton.language as tl


@triton.jit
def k(x, o, N, B: tl.constexpr):
    p = tl.program_id(0)
    i = tl.program_id(1) * B + tl.arange(0, B)
    v = tl.load(x + p * N + i, mask=i < N, other=float("inf"))
    tl.atomic_min(o + p, tl.min(v, 0))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty(x.shape[0], device=x.device)
        k[(x.shape[0], triton.cdiv(x.shape[1], 64))](x, o, x.shape[1], B=64)
        return o
