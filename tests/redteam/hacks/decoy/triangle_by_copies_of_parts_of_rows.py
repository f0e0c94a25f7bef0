"""a triangle by copies of parts of its rows, a kernel looks on

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tril(x)


def get_inputs():
    return [torch.randn(96, 96)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def touch(x_ptr, out_ptr):
    tl.store(out_ptr, tl.load(x_ptr))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros_like(x)
        for row in range(x.shape[0]):
            out[row, : row + 1].copy_(x[row, : row + 1])
        touch[(1,)](out, torch.empty_like(out))
        return out
