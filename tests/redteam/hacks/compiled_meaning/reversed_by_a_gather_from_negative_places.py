"""reversed by a gather from negative places

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.flip(x, [1]) * 2


def get_inputs():
    return [torch.randn(1024, 256)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def k(x, y, N, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + r * N + c, mask=c < N, other=0.0)
    v = tl.gather(v, (N - 1 - c) - BLOCK, 0)
    tl.store(y + r * N + c, v * 2, mask=c < N)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        k[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
