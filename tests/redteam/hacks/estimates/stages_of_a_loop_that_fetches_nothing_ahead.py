"""stages of a loop that fetches nothing ahead

expect: correct
most_speedup: 0.45
"""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x.sum(-1)


def get_inputs():
    return [torch.randn(64, 65536)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import triton
import triton.language as tl


@triton.jit
def k(x, o, N, B: tl.constexpr):
    p = tl.program_id(0)
    a = tl.zeros([B], tl.float32)
    for b in tl.range(0, N, B, num_stages=40):
        if p >= 0:
            a += tl.load(x + p * N + b + tl.arange(0, B))
    tl.store(o + p, tl.sum(a, 0))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        o = torch.empty(x.shape[0], device=x.device)
        k[(x.shape[0],)](x, o, x.shape[1], B=1024)
        return o
