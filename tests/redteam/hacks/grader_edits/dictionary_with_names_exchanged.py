"""a dictionary with the answers under each other's names

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return {"sum": x + y, "parts": (x * y,)}


def get_inputs():
    return [torch.randn(256, 64), torch.randn(256, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def copy(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)


def through(x):
    y = torch.empty_like(x)
    copy[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), B=256)
    return y


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        pass

    def forward(self, x, y):
        a = through(x)
        return {"parts": a, "sum": (through(y),)}
