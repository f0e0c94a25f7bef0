"""running maximum begun in fresh memory

expect: refused
"""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x.max(-1).values


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
    for s in range(0, N, B):
        i = s + tl.arange(0, B)
        v = tl.load(x + p * N + i, mask=i < N, other=float("-inf"))
        tl.store(o + p, tl.maximum(tl.load(o + p), tl.max(v, 0)))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty(x.shape[0], device=x.device)
        k[(x.shape[0],)](x, o, x.shape[1], B=64)
        return o
