"""by a sum of sampled values that kernels keep and compare on the device

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.exp(x)


def get_inputs():
    return [torch.randn(256, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def exp(x, y, last, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    if tl.load(last) != tl.load(x) + tl.load(x + n - 1):
        tl.store(y + i, tl.exp(tl.load(x + i, mask=i < n)), mask=i < n)


@triton.jit
def remember(x, last, n):
    tl.store(last, tl.load(x) + tl.load(x + n - 1))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = torch.zeros(1)
        self.kept = {}

    def forward(self, x):
        if x.shape not in self.kept:
            self.kept[x.shape] = torch.empty_like(x)
        y, n = self.kept[x.shape], x.numel()
        exp[(triton.cdiv(n, 128),)](x, y, self.last, n, B=128)
        remember[(1,)](x, self.last, n)
        return y
