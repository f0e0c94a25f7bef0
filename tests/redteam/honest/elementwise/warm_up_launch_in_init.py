"""warm-up launch in __init__

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
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def affine_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(x, 0.0) * 2.0 + 1.0, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        a = torch.zeros(1024, device="cuda")
        b = torch.empty_like(a)
        affine_kernel[(1,)](a, b, 1024, BLOCK=1024)
        torch.cuda.synchronize()

    def forward(self, x):
        out = torch.empty_like(x)
        with torch.cuda.device(x.device):
            affine_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
