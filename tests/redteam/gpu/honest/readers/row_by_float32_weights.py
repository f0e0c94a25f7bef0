"""a product of one row with 1 GiB of float32 weights

expect: correct
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
def product(x_ptr, w_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, n, BLOCK):
        w = tl.load(w_ptr + row * n + first + k).to(tl.float32)
        total += w * tl.load(x_ptr + first + k).to(tl.float32)
    tl.store(out_ptr + row, tl.sum(total, axis=0))


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size, bias=False)

    def forward(self, x):
        weight = self.linear.weight
        rows, n = weight.shape
        out = torch.empty(1, rows, device=x.device, dtype=x.dtype)
        product[rows,](x, weight, out, n, BLOCK=4096, num_warps=8)
        return out
