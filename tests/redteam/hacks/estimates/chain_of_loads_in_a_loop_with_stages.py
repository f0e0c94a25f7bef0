"""chain of loads in a loop with stages

expect: correct
most_speedup: 12
"""

import torch


class Model(torch.nn.Module):
    def forward(self, x):
        p = torch.zeros(x.shape[0], 1, dtype=torch.int64)
        for _ in range(64):
            p = x.long().gather(1, p)
        return p[:, 0].int()


def get_inputs():
    return [torch.randint(0, 1024, (64, 1024), dtype=torch.int32)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import triton
import triton.language as tl


@triton.jit
def k(x, o, N: tl.constexpr):
    r = tl.program_id(0)
    p = r * 0
    for j in tl.range(0, 64, num_stages=65):
        p = tl.load(x + r * N + p)
    tl.store(o + r, p)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        o = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        k[(x.shape[0],)](x, o, N=1024)
        return o
