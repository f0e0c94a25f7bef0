"""closure that makes the launcher, kernel made by a factory

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


def make(scale, shift):
    SCALE = tl.constexpr(scale)
    SHIFT = tl.constexpr(shift)

    @triton.jit
    def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i, mask=i < n)
        tl.store(out_ptr + i, tl.maximum(x, 0.0) * SCALE + SHIFT, mask=i < n)

    def launch(x):
        out = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)
        return out

    return launch


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.launch = make(2.0, 1.0)

    def forward(self, x):
        return self.launch(x)
