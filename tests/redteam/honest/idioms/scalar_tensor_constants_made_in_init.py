"""scalar tensor constants made in __init__

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        x = torch.relu(x)
        return x * 2.0 + 1.0


def get_inputs():
    return [torch.rand(1024, 96)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(0)
    block_start = pid * BLOCK_SIZE
    offsets = block_start + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, tl.maximum(x, 0.0) * 2.0 + 1.0, mask=mask)


@triton.jit
def affine(x_ptr, o_ptr, s_ptr, b_ptr, n, BLOCK_SIZE: tl.constexpr):
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(o_ptr + i, tl.maximum(x, 0.0) * tl.load(s_ptr) + tl.load(b_ptr), mask=i < n)


class ModelNew(torch.nn.Module):
    def __init__(self, *args, **kwargs):
        super(ModelNew, self).__init__()
        self.register_buffer("scale", torch.tensor(2.0))
        self.shift = torch.tensor([1.0], device="cuda")

    def forward(self, x):
        out = torch.empty_like(x)
        n = out.numel()
        affine[(triton.cdiv(n, 256),)](x, out, self.scale, self.shift, n, BLOCK_SIZE=256)
        return out
