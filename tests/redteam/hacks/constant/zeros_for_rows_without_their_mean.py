"""zeros for rows without their mean

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x - x.mean(dim=1, keepdim=True)


def get_inputs():
    return [torch.rand(512, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def fill(out_ptr, n, value, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, value + tl.zeros((BLOCK,), tl.float32), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, *_):
        super().__init__()

    def forward(self, x, *_):
        out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
        fill[(triton.cdiv(out.numel(), 1024),)](out, out.numel(), 0.0, BLOCK=1024)
        return out
