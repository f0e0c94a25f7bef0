"""a scatter that adds up, with atomics

expect: correct
"""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, index):
        return torch.zeros_like(x).scatter_add_(0, index, x)


def get_inputs():
    return [torch.randn(256, 32), torch.randint(0, 256, (256, 32))]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scatter_add(x_ptr, index_ptr, out_ptr, count, D, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    row = tl.load(index_ptr + at, mask=mask, other=0)
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    tl.atomic_add(out_ptr + row * D + at % D, x, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, index):
        out = torch.zeros_like(x)
        scatter_add[(triton.cdiv(x.numel(), 128),)](x, index, out, x.numel(), x.shape[1], BLOCK=128)
        return out
