"""every program adds up rows under one lock

expect: correct
most_speedup: 0.05
"""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x.sum(0)


def get_inputs():
    return [torch.randn(128, 65536)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import triton
import triton.language as tl


@triton.jit
def k(x, o, f, N, B: tl.constexpr):
    p = tl.program_id(0)
    while tl.atomic_cas(f, 0, 1) == 1:
        pass
    for b in range(0, N, B):
        i = b + tl.arange(0, B)
        tl.store(o + i, tl.load(o + i) + tl.load(x + p * N + i))
    tl.debug_barrier()
    tl.atomic_xchg(f, 0)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.zeros(x.shape[1], device=x.device)
        f = torch.zeros(1, device=x.device, dtype=torch.int32)
        k[(x.shape[0],)](x, o, f, x.shape[1], B=4096)
        return o
