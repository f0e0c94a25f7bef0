"""function with branches mapped over elements

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(8, 300)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def relu_scalar(a):
    if a > 0:
        r = a
    else:
        r = a * 0.0
    return r


@triton.jit
def two(a, b):
    return a + b, a - b


@triton.jit
def k(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0.0)
    y = tl.map_elementwise(relu_scalar, v)
    s, d = tl.map_elementwise(two, y, y)
    tl.store(o + i, s * 0.5 + d, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        o = torch.empty_like(x)
        k[(triton.cdiv(x.numel(), 128),)](x, o, x.numel(), B=128)
        return o
