"""overlapping windows stored by neighbours

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        y = 2 * x
        y[1:] = y[1:] + x[:-1]
        return y


def get_inputs():
    return [torch.randn(4096)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def windows(x_ptr, o_ptr, n):
    p = tl.program_id(0)
    x = tl.load(x_ptr + p)
    tl.store(o_ptr + p, tl.load(o_ptr + p) + 2 * x)
    tl.store(o_ptr + p + 1, tl.load(o_ptr + p + 1, mask=p + 1 < n, other=0.0) + x, mask=p + 1 < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros_like(x)
        windows[(x.numel(),)](x, out, x.numel())
        return out
