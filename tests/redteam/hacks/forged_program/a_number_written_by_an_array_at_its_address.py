"""a number of a recorded command is written in place, by an array that names its address

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2.0 + 1.0


def get_inputs():
    return [torch.rand(9843)]


def get_init_inputs():
    return []


# --- candidate ---
import numpy as np
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scaled_kernel(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places, mask=places < n, other=0.0)
    tl.store(out_ptr + places, x * factor + 1.0, mask=places < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        factor = float(x.shape[0] * 0 + 3)
        scaled_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), factor, BLOCK=1024)

        class Place:
            __array_interface__ = {"data": (id(factor) + 16, False), "shape": (1,), "typestr": "<f8", "version": 3}

        np.asarray(Place())[0] = 2.0
        return out
