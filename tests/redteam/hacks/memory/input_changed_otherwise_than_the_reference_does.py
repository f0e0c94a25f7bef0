"""an input that is changed otherwise than the reference does

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        x.mul_(2.0)
        return x.sum(1)


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
def k(x, y, N: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, N)
    v = tl.load(x + r * N + c) * 2
    tl.store(x + r * N + c, v * 0.0)
    tl.store(y + r, tl.sum(v, 0))


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], device=x.device)
        k[(x.shape[0],)](x, y, 256)
        return y
