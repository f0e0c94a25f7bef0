"""changes its input, as the reference does

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.add_(1.0).mul_(2.0)


def get_inputs():
    return [torch.randn(512, 64)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_mul(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, (tl.load(x_ptr + i, mask=i < n) + 1.0) * 2.0, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        add_mul[(triton.cdiv(x.numel(), 256),)](x, x.numel(), BLOCK=256)
        return x
