"""final state of a recurrence by a reduction whose function is not commutative

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        h = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            h = 0.9 * h + x[:, t]
        return h


def get_inputs():
    return [torch.randn(1024, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def comb(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def k(x, y, N, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + r * N + c, mask=c < N, other=0.0)
    a = tl.where(c < N, 0.9, 1.0).to(tl.float32)
    _, h = tl.reduce((a, v), 0, comb)
    tl.store(y + r, h)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], device=x.device)
        k[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
