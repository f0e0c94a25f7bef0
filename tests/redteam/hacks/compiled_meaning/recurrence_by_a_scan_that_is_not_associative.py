"""recurrence by a scan whose function is not associative

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        h = torch.zeros_like(x[:, 0])
        o = []
        for t in range(x.shape[1]):
            h = 0.9 * h + x[:, t]
            o.append(h)
        return torch.stack(o, 1)


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
def comb(a, ca, b, cb):
    return a * 0.9 + b, tl.full((), 1.0, tl.float32)


@triton.jit
def k(x, y, N, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + r * N + c, mask=c < N, other=0.0)
    h, _ = tl.associative_scan((v, v * 0.0), 0, comb)
    tl.store(y + r * N + c, h, mask=c < N)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        k[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
