"""do_not_specialize, noinline helper, debug asserts

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


@triton.jit(noinline=True)
def place(program):
    return program + 0


@triton.jit(do_not_specialize=["n"])
def affine(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK % 32 == 0)
    i = place(tl.program_id(0)) * BLOCK + tl.arange(0, BLOCK)
    tl.device_assert(i >= 0, "index")
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(o_ptr + i, tl.maximum(x, 0.0) * 2.0 + 1.0, mask=i < n)


class ModelNew(torch.nn.Module):
    def __init__(self, *args, **kwargs):
        super(ModelNew, self).__init__()

    def forward(self, x):
        out = torch.empty_like(x)
        n = out.numel()
        affine[(triton.cdiv(n, 512),)](x, out, n, BLOCK=512)
        return out
