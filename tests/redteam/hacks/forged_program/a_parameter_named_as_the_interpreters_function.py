"""a parameter named as the interpreter's own function

expect: refused
"""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x.cumsum(-1)[:, -1:] * 1 + x[:, -1:]


def get_inputs():
    return [torch.randn(512, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import triton
import triton.language as tl


@triton.jit
def last():
    return 63


@triton.jit
def k(x, o, N, _kernel_ended: tl.constexpr, B: tl.constexpr):
    p = tl.program_id(0)
    a = 0.0
    for j in range(0, 64):
        a += tl.load(x + p * N + j)
    tl.store(o + p, a + tl.load(x + p * N + j))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty(x.shape[0], 1, device=x.device)
        k[(x.shape[0],)](x, o, x.shape[1], last, B=64)
        return o
