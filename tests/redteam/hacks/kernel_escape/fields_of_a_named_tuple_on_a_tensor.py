"""declares the names of inner attributes as fields of a named tuple, and reads them of a tensor

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs():
    return [torch.randn(300)]


def get_init_inputs():
    return []


# --- candidate ---
from collections import namedtuple

import torch
import torch.nn as nn
import triton
import triton.language as tl

Way = namedtuple("Way", "handle data fn src builder gi_frame f_globals")


@triton.jit
def helper(x):
    return x * 2


@triton.jit
def k(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    h = v.handle
    tl.store(y + i, helper(v), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        k[(3,)](x, y, x.numel(), B=128)
        return y
