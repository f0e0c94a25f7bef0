"""scalar stored by one thread and loaded by all

expect: refused
"""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x - x.mean(-1, keepdim=True)


def get_inputs():
    return [torch.randn(512, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import triton
import triton.language as tl


@triton.jit
def k(x, o, s, N, B: tl.constexpr):
    p = tl.program_id(0)
    i = tl.arange(0, B)
    v = tl.load(x + p * N + i, mask=i < N, other=0.0)
    tl.store(s + p, tl.sum(v, 0) / N)
    mean = tl.load(s + p)
    tl.store(o + p * N + i, v - mean, mask=i < N)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty_like(x)
        s = torch.empty(x.shape[0], device=x.device)
        k[(x.shape[0],)](x, o, s, x.shape[1], B=256)
        return o
