"""a scatter of rows to a permutation of the rows

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, order):
        return torch.zeros_like(x).index_copy_(0, order, torch.tanh(x))


def get_inputs():
    return [torch.randn(400, 40), torch.randperm(400)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scatter(x_ptr, order_ptr, out_ptr, D, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * D + cols, mask=cols < D, other=0.0)
    y = 2.0 * tl.sigmoid(2.0 * x) - 1.0
    tl.store(out_ptr + tl.load(order_ptr + row) * D + cols, y, mask=cols < D)


class ModelNew(nn.Module):
    def forward(self, x, order):
        out = torch.empty_like(x)
        scatter[(x.shape[0],)](x, order, out, x.shape[1], BLOCK=64)
        return out
