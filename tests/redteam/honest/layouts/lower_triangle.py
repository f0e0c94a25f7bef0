"""lower triangle: the rest is zeros from torch.zeros

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tril(x * 2.0)


def get_inputs():
    return [torch.randn(128, 128)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def lower(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    mask = (c <= row) & (c < N)
    tl.store(y_ptr + row * N + c, tl.load(x_ptr + row * N + c, mask=mask) * 2.0, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.zeros_like(x)
        lower[(x.shape[0],)](x, y, x.shape[1], BLOCK=128)
        return y
