"""row total that one thread has added up

expect: refused
"""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x / x.sum(-1, keepdim=True)


def get_inputs():
    return [torch.rand(512, 256) + 0.5]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import triton
import triton.language as tl


@triton.jit
def k(x, o, s, N, B: tl.constexpr):
    p = tl.program_id(0)
    for b in range(0, N, B):
        i = b + tl.arange(0, B)
        tl.atomic_add(s + p, tl.sum(tl.load(x + p * N + i), 0))
    t = tl.load(s + p)
    for b in range(0, N, B):
        i = b + tl.arange(0, B)
        tl.store(o + p * N + i, tl.load(x + p * N + i) / t)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty_like(x)
        s = torch.zeros(x.shape[0], device=x.device)
        k[(x.shape[0],)](x, o, s, x.shape[1], B=64)
        return o
