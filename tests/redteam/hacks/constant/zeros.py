"""zeros

expect: refused
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        x = torch.relu(x) * 2.0 + 1.0
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.rand(1024, 100)]


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
