"""grid as a list-like tuple and positional constexpr

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


class ModelNew(torch.nn.Module):
    def __init__(self, *args, **kwargs):
        super(ModelNew, self).__init__()

    def forward(self, x):
        out = torch.empty_like(x)
        n = out.numel()
        grid = (triton.cdiv(n, 1024), 1, 1)
        relu_kernel[grid](x, out, n, 1024, num_warps=8, num_stages=3)
        return out
