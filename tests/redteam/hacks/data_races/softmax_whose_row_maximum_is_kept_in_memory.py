"""softmax whose row maximum is kept in memory

expect: refused
"""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x.softmax(-1)


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
    tl.store(s + p, -float("inf"))
    for b in range(0, N, B):
        i = b + tl.arange(0, B)
        v = tl.load(x + p * N + i, mask=i < N, other=-float("inf"))
        tl.store(s + p, tl.maximum(tl.load(s + p), tl.max(v, 0)))
    m = tl.load(s + p)
    t = 0.0
    for b in range(0, N, B):
        i = b + tl.arange(0, B)
        v = tl.load(x + p * N + i, mask=i < N, other=-float("inf"))
        t += tl.sum(tl.exp(v - m), 0)
    for b in range(0, N, B):
        i = b + tl.arange(0, B)
        v = tl.load(x + p * N + i, mask=i < N, other=-float("inf"))
        tl.store(o + p * N + i, tl.exp(v - m) / t, mask=i < N)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty_like(x)
        s = torch.empty(x.shape[0], device=x.device)
        k[(x.shape[0],)](x, o, s, x.shape[1], B=64)
        return o
