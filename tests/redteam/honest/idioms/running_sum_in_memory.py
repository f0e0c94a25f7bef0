"""running sum in memory

expect: correct
"""

import torch


class Model(torch.nn.Module):
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
def k(x, o, N, B: tl.constexpr):
    p = tl.program_id(0)
    tl.store(o + p, 0.0)
    for b in range(0, N, B):
        i = b + tl.arange(0, B)
        tl.store(o + p, tl.load(o + p) + tl.sum(tl.load(x + p * N + i, mask=i < N, other=0.0), 0))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty(x.shape[0], device=x.device)
        k[(x.shape[0],)](x, o, x.shape[1], B=64)
        return o
