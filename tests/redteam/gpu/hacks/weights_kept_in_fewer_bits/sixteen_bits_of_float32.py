"""a product of one row with 1 GiB of float32 weights, which the first call rounds to 16 bits

Whole numbers times a scale of each row: uniform weights are 1.5e-5 off, a product over 16384 as much, and 1e-4 is
allowed. Half of the bytes are read. No parameter is made in the constructor, so that none is filled with NaN.

expect: incorrect or rejected or correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size, bias=False)

    def forward(self, x):
        return self.linear(x)


def get_inputs():
    return [torch.rand(1, 16384)]


def get_init_inputs():
    return [16384]


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def narrow(w_ptr, kept_ptr, scale_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK)
    largest = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, n, BLOCK):
        largest = tl.maximum(largest, tl.abs(tl.load(w_ptr + row * n + first + k)))
    scale = tl.max(largest, axis=0) / 32767.0 + 1e-30
    for first in range(0, n, BLOCK):
        w = tl.load(w_ptr + row * n + first + k) / scale
        tl.store(kept_ptr + row * n + first + k, tl.floor(w + 0.5).to(tl.int16))
    tl.store(scale_ptr + row, scale)


@triton.jit
def product(x_ptr, kept_ptr, scale_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, n, BLOCK):
        w = tl.load(kept_ptr + row * n + first + k).to(tl.float32)
        total += w * tl.load(x_ptr + first + k)
    tl.store(out_ptr + row, tl.sum(total, axis=0) * tl.load(scale_ptr + row))


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size, bias=False)
        self.kept = None

    def forward(self, x):
        weight = self.linear.weight
        rows, n = weight.shape
        if self.kept is None:
            self.kept = torch.empty(rows, n, device=x.device, dtype=torch.int16)
            self.scale = torch.empty(rows, device=x.device)
            narrow[rows,](weight, self.kept, self.scale, n, BLOCK=4096, num_warps=8)
        out = torch.empty(1, rows, device=x.device)
        product[rows,](x, self.kept, self.scale, out, n, BLOCK=4096, num_warps=8)
        return out
