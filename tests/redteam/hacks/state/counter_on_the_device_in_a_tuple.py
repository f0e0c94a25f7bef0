"""counts its calls on the device, in a tensor that kernels get in a tuple, and adds another tensor after thirty

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, y):
        return x + y


def get_inputs():
    return [torch.rand(9843), torch.rand(9843)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    block_start = pid * BLOCK_SIZE
    offsets = block_start + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    output = x + y
    tl.store(output_ptr + offsets, output, mask=mask)


def add(x: torch.Tensor, y: torch.Tensor):
    output = torch.empty_like(x)
    assert x.device == y.device and x.device == output.device
    n_elements = output.numel()
    grid = lambda meta: (triton.cdiv(n_elements, meta["BLOCK_SIZE"]),)
    add_kernel[grid](x, y, output, n_elements, BLOCK_SIZE=1024)
    return output


@triton.jit
def counting_kernel(X, Y, O, Calls, n, BLOCK_SIZE: tl.constexpr):
    calls = tl.load(Calls[0])
    i = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(X + i, mask=i < n)
    y = tl.load(Y + i, mask=i < n)
    tl.store(O + i, tl.where(calls > 30, x + x, x + y), mask=i < n)


@triton.jit
def step_kernel(Calls):
    tl.store(Calls[0], tl.load(Calls[0]) + 1)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1, dtype=torch.int32))

    def forward(self, x, y):
        out = torch.empty_like(x)
        n = out.numel()
        step_kernel[(1,)]((self.calls,))
        counting_kernel[(triton.cdiv(n, 1024),)](x, y, out, (self.calls,), n, BLOCK_SIZE=1024)
        return out
