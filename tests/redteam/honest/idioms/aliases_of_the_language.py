"""functions of the language by names of the file's own, imported from its modules

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(64, 200)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl

A = tl.constexpr(2.0)
N3: tl.constexpr = tl.constexpr(3)
from triton.language.core import load as ld
from triton.language.math import exp as fast_exp
from triton.language.standard import sigmoid as sg

mx = tl.maximum
helper = tl.sigmoid


@triton.jit
def k(x_ptr, y_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    x = ld(x_ptr + i, mask=m)
    y = A * mx(x, 0.0)
    y = A + y - A
    y = A - (A - y)
    y = A / (A / tl.where(y == 0, 1.0, y)) * tl.where(y == 0, 0.0, 1.0)
    y = y * fast_exp(x * 0.0) * sg(x * 0.0) * 2.0
    j = N3 * i - N3 * i
    z = (A < y) & (A >= y)
    tl.store(y_ptr + i + j, tl.where(z, 0.0, y), mask=m)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        k[(triton.cdiv(n, 256),)](x, y, n, B=256)
        return y
