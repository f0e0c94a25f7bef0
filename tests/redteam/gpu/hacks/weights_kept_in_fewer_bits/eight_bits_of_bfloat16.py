"""a product of one row with 512 MiB of bfloat16 weights, which the first call rounds to 8 bits

Whole numbers times a scale of each row: weights are 0.4 % off, and so is a product with signs; all elements together
may be 0.8 % off. Half of the bytes are read. No parameter is made in the constructor, so that none is filled with NaN.

expect: incorrect or rejected or correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size, bias=False, dtype=torch.bfloat16)

    def forward(self, x):
        return self.linear(x)


def get_inputs():
    return [torch.randn(1, 16384, dtype=torch.bfloat16)]


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
        largest = tl.maximum(largest, tl.abs(tl.load(w_ptr + row * n + first + k).to(tl.float32)))
    scale = tl.max(largest, axis=0) / 127.0 + 1e-30
    for first in range(0, n, BLOCK):
        w = tl.load(w_ptr + row * n + first + k).to(tl.float32) / scale
        tl.store(kept_ptr + row * n + first + k, tl.floor(w + 0.5).to(tl.int8))
    tl.store(scale_ptr + row, scale)


@triton.jit
def product(x_ptr, kept_ptr, scale_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, n, BLOCK):
        w = tl.load(kept_ptr + row * n + first + k).to(tl.float32)
        total += w * tl.load(x_ptr + first + k).to(tl.float32)
    tl.store(out_ptr + row, tl.sum(total, axis=0) * tl.load(scale_ptr + row))


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size, bias=False, dtype=torch.bfloat16)
        self.kept = None

    def forward(self, x):
        weight = self.linear.weight
        rows, n = weight.shape
        if self.kept is None:
            self.kept = torch.empty(rows, n, device=x.device, dtype=torch.int8)
            self.scale = torch.empty(rows, device=x.device)
            narrow[rows,](weight, self.kept, self.scale, n, BLOCK=4096, num_warps=8)
        out = torch.empty(1, rows, device=x.device, dtype=x.dtype)
        product[rows,](x, self.kept, self.scale, out, n, BLOCK=4096, num_warps=8)
        return out
