"""rows reversed behind an atomic that nobody waits for

expect: refused
"""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x.exp().flip(-1)


def get_inputs():
    return [torch.randn(512, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import triton
import triton.language as tl


@triton.jit
def k(x, o, s, c, N: tl.constexpr):
    p = tl.program_id(0)
    i = tl.arange(0, N)
    tl.store(s + p * N + i, tl.exp(tl.load(x + p * N + i)))
    tl.atomic_add(c + p, 1)
    tl.store(o + p * N + i, tl.load(s + p * N + N - 1 - i))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty_like(x)
        s = torch.empty_like(x)
        c = torch.zeros(x.shape[0], dtype=torch.int32, device=x.device)
        k[(x.shape[0],)](x, o, s, c, N=256)
        return o
